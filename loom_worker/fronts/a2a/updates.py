"""A turn's events as the responses of a stream: the task first, then its changes."""

from collections.abc import Iterable, Iterator

from loom_worker.core.values.json import Json
from loom_worker.core.values.notifications import Event
from loom_worker.fronts.a2a import tasks


class TaskUpdates:
    """What one reader is told of a turn whose events it gets from the first one on.

    The chunks of the artifact, put together as ``append`` says, are the text of the task at its end. Where a turn
    takes back what it said, or it was commentary, the next chunk takes the place of all before it.
    """

    def __init__(self, turn: Json) -> None:
        """Begin with the turn as it is now: what a person has decided by now is not asked again."""
        self.is_over = False
        """True once the task has ended or waits for a person: the stream ends there."""
        self._turn = turn
        self._decided = {call["id"] for call in turn["tool_calls"] if not tasks.is_waiting(call)}
        self._said: list[str] = []
        """What the reader has been given of the text and still holds."""
        self._is_working = self._is_told = False

    def first(self) -> Json:
        """The task as it is now, without the text: that comes in chunks."""
        return {"task": tasks.task_of({**self._turn, "output_text": None})}

    def of(self, events: Iterable[Event]) -> Iterator[Json]:
        """The responses that follow from the next events."""
        for event in events:
            if not self.is_over:
                yield from self._of(event)

    def _of(self, event: Event) -> Iterator[Json]:
        match event.type:
            case "turn.started" if not self._is_working:
                self._is_working = True
                yield self._status({"state": tasks.WORKING})
            case "output_text.delta":
                yield self._chunk(event.data["text"])
            case "turn.retrying" | "stream.reset" | "output_text.commentary":
                self._said.clear()
            case "approval.required" if event.data["id"] not in self._decided:
                self.is_over = True
                message = tasks.question_about(self._turn["id"], self._turn["session_id"], [event.data])
                yield self._status({"state": tasks.INPUT_REQUIRED, "message": message})
            case _ if event.is_final:
                self.is_over = True
                yield from self._end(event.data)

    def _end(self, turn: Json) -> Iterator[Json]:
        text, told = turn["output_text"] or "", "".join(self._said)
        if text or self._is_told:
            # Some chunk must be the last one. It adds nothing, unless the reader has another text than the task.
            if text != told:
                self._said.clear()
            yield self._chunk("" if text == told else text, is_last=True)
        yield self._status(tasks.status_of(turn), tasks.metadata_of(turn))

    def _chunk(self, text: str, *, is_last: bool = False) -> Json:
        is_first, self._is_told = not self._said, True
        self._said.append(text)
        return {
            "artifactUpdate": {
                **self._ids(),
                "artifact": tasks.artifact(text),
                "append": not is_first,
                "lastChunk": is_last,
            }
        }

    def _status(self, status: Json, metadata: Json | None = None) -> Json:
        return {"statusUpdate": {**self._ids(), "status": status, **({"metadata": metadata} if metadata else {})}}

    def _ids(self) -> Json:
        return {"taskId": self._turn["id"], "contextId": self._turn["session_id"]}
