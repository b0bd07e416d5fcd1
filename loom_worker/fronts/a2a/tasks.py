"""A turn as a task of the protocol. Pure; takes turns as JSON, as the final event of a stream holds them."""

from collections.abc import Iterable, Iterator

from loom_worker.core.values.json import Json
from loom_worker.core.values.notifications import Event

ANSWER = "answer"
"""The id of the artifact that holds what the agent says."""
OURS = "loom"
"""The member of a task's metadata in which Loom says more than the protocol has words for."""
MESSAGE_MEMBER = "a2a"
"""The member of a turn's metadata in which the message is described that it began with."""
SUBMITTED = "TASK_STATE_SUBMITTED"
WORKING = "TASK_STATE_WORKING"
INPUT_REQUIRED = "TASK_STATE_INPUT_REQUIRED"
COMPLETED = "TASK_STATE_COMPLETED"
FAILED = "TASK_STATE_FAILED"
CANCELED = "TASK_STATE_CANCELED"
ENDS = {"completed": COMPLETED, "failed": FAILED, "incomplete": FAILED, "cancelled": CANCELED}
"""States of a task whose turn has ended, by the turn's status."""


def state_of(turn: Json) -> str:
    """The state of the task; a person is asked only as long as a call waits for one."""
    if turn["status"] == "queued":
        return SUBMITTED
    return ENDS.get(turn["status"]) or (INPUT_REQUIRED if waiting_calls(turn) else WORKING)


def waiting_calls(turn: Json) -> list[Json]:
    """The tool calls that wait for a person."""
    calls: list[Json] = turn["tool_calls"]
    return [call for call in calls if call["approval"] == "waiting" and call["status"] in ("pending", "running")]


def task_of(turn: Json, *, history_length: int | None = None) -> Json:
    """The task.

    Args:
        history_length: the most messages of its history; None: all of them.
    """
    history = [_question(turn)][: 1 if history_length is None else history_length]
    text = turn["output_text"]
    return {
        "id": turn["id"],
        "contextId": turn["session_id"],
        "status": status_of(turn),
        **({"artifacts": [artifact(text)]} if text else {}),
        **({"history": history} if history else {}),
        "metadata": metadata_of(turn),
    }


def status_of(turn: Json) -> Json:
    """The status, with a message where there is something to say."""
    moment = turn["completed_at"] or turn["started_at"] or turn["created_at"]
    status = {"state": state_of(turn), "timestamp": moment}
    if calls := waiting_calls(turn):
        return {**status, "message": question_about(turn["id"], turn["session_id"], calls)}
    if status["state"] == FAILED:
        why = (turn["error"] or {}).get("message") or f"The turn ended as {turn['status']} ({turn['reason']})."
        return {**status, "message": _from_agent(turn["id"], turn["session_id"], "status", [{"text": str(why)}])}
    return status


def metadata_of(turn: Json) -> Json:
    """The turn's metadata, and what Loom adds to it."""
    own = {name: value for name, value in turn["metadata"].items() if name != MESSAGE_MEMBER}
    return {**own, OURS: {"status": turn["status"], "reason": turn["reason"], "usage": turn["usage"]}}


def artifact(text: str) -> Json:
    """What the agent says, or a piece of it."""
    return {"artifactId": ANSWER, "name": ANSWER, "parts": [{"text": text}]}


def question_about(task_id: str, context_id: str, calls: list[Json]) -> Json:
    """The message that asks a person whether tool calls may run: in words, and as data for programs."""
    asked = [{"tool_call_id": call["id"], "name": call["name"], "arguments": call["arguments"]} for call in calls]
    names = ", ".join(call["name"] for call in calls)
    text = (
        f"May the agent call {names}? Answer in this task with the text approve or deny, or with a data part "
        '{"decision": "approve" or "deny", "tool_call_id": …}.'
    )
    return _from_agent(task_id, context_id, calls[0]["id"], [{"text": text}, {"data": {"tool_calls": asked}}])


def _question(turn: Json) -> Json:
    known = turn["metadata"].get(MESSAGE_MEMBER)
    message_id = known.get("message_id") if isinstance(known, dict) else None
    return {
        "messageId": message_id or f"{turn['id']}.input",
        "contextId": turn["session_id"],
        "taskId": turn["id"],
        "role": "ROLE_USER",
        "parts": [{"text": turn["input"]}] if isinstance(turn["input"], str) else list(map(_part, turn["input"])),
    }


def _part(part: Json) -> Json:
    return {"text": part.get("text") or part.get("url") or f"[{part['type']} {part['file_id']}]"}


def _from_agent(task_id: str, context_id: str, name: str, parts: list[Json]) -> Json:
    return {
        "messageId": f"{task_id}.{name}",
        "contextId": context_id,
        "taskId": task_id,
        "role": "ROLE_AGENT",
        "parts": parts,
    }


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
        waiting = waiting_calls(turn)
        self._decided = {call["id"] for call in turn["tool_calls"] if call not in waiting}
        self._said: list[str] = []
        """What the reader has been given of the text and still holds."""
        self._is_working = self._is_told = False

    def first(self) -> Json:
        """The task as it is now, without the text: that comes in chunks."""
        return {"task": task_of({**self._turn, "output_text": None})}

    def of(self, events: Iterable[Event]) -> Iterator[Json]:
        """The responses that follow from the next events."""
        for event in events:
            if not self.is_over:
                yield from self._of(event)

    def _of(self, event: Event) -> Iterator[Json]:
        match event.type:
            case "turn.started" if not self._is_working:
                self._is_working = True
                yield self._status({"state": WORKING})
            case "output_text.delta":
                yield self._chunk(event.data["text"])
            case "turn.retrying" | "stream.reset" | "output_text.commentary":
                self._said.clear()
            case "approval.required" if event.data["id"] not in self._decided:
                self.is_over = True
                message = question_about(self._turn["id"], self._turn["session_id"], [event.data])
                yield self._status({"state": INPUT_REQUIRED, "message": message})
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
        yield self._status(status_of(turn), metadata_of(turn))

    def _chunk(self, text: str, *, is_last: bool = False) -> Json:
        is_first, self._is_told = not self._said, True
        self._said.append(text)
        return {
            "artifactUpdate": {
                **self._ids(),
                "artifact": artifact(text),
                "append": not is_first,
                "lastChunk": is_last,
            }
        }

    def _status(self, status: Json, metadata: Json | None = None) -> Json:
        return {"statusUpdate": {**self._ids(), "status": status, **({"metadata": metadata} if metadata else {})}}

    def _ids(self) -> Json:
        return {"taskId": self._turn["id"], "contextId": self._turn["session_id"]}
