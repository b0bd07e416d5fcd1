"""The event log of a turn, made anew from its journal. Pure.

The journal's ``events`` rows say which events the turn wrote and with which ids; the text of deltas is cut out of the
reply they belong to. Events that a dead attempt wrote, and that nobody can tell any more, become empty deltas, so
that every later event keeps its id and a reader that resumes finds no gap.
"""

from collections.abc import Iterable, Iterator, Sequence

from loom_worker.core.values.json import Json
from loom_worker.core.values.notifications import Event
from loom_worker.core.values.turns import BETWEEN_REPLIES, Call, Step, Turn, joined

LOST = ("output_text.delta", {"text": ""})


def rebuild(turn: Turn, journal: Sequence[Step]) -> tuple[Event, ...]:
    """The events of a turn so far, with a final one if it has ended.

    Of a turn whose journal has been removed: its tool calls, its answer as one piece, and the final one.
    """
    answer = turn.output_text or ""
    replies = _texts(journal, answer)
    told = _Told(turn, _told_by_the_turn(journal))
    told_up_to = 0  # calls of later replies had not begun when the turn told this part
    for step in journal:
        if step.kind == "events":
            told.fill_up_to(int(step.payload["first"]), before_reply_n=told_up_to)
            told.add(_entries(step.payload["log"], replies))
            told_up_to = step.n
    told.add(told.untold_calls())
    if is_purged(turn, journal) and answer:
        told.add([("output_text.delta", {"text": answer})])
    if turn.is_finished:
        told.add([(f"turn.{turn.status}", turn.as_json())])
    return tuple(told.events)


def is_purged(turn: Turn, journal: Sequence[Step]) -> bool:
    """True of a turn that ran and whose journal has been removed: its log is made of its row, in fewer events."""
    return turn.is_finished and turn.started_ms is not None and not journal


def _texts(journal: Sequence[Step], answer: str) -> dict[int, str]:
    """The text of each reply by its number, with what parts it from the replies before it.

    The journal has no text of the last one if that is the end of the turn's answer.
    """
    told = ""
    texts: dict[int, str] = {}
    for step in journal:
        if step.kind == "reply":
            between = BETWEEN_REPLIES if told else ""
            text = step.payload["text"]
            texts[step.n] = between + (answer.removeprefix(told + between) if text is None else str(text))
            told = joined((told, text))
    return texts


class _Told:
    """The log as far as it has been retold."""

    def __init__(self, turn: Turn, by_the_turn: frozenset[str]) -> None:
        """Args: by_the_turn: ids of calls whose end the turn itself told."""
        self.events: list[Event] = []
        closed = [call for call in turn.calls if _is_told_by_its_worker(call) and call.id not in by_the_turn]
        self._calls = sorted(closed, key=lambda call: (call.finished_ms or 0, call.position))
        self.add([("turn.queued", queued(turn))])

    def add(self, entries: Iterable[tuple[str, Json]]) -> None:
        for kind, data in entries:
            self.events.append(Event(len(self.events) + 1, kind, data))

    def fill_up_to(self, first: int, *, before_reply_n: int) -> None:
        """What stands before an id and was not written by the turn itself: results of its tools, then what is lost."""
        missing = first - 1 - len(self.events)
        begun = [call for call in self._calls if call.reply_n < before_reply_n]
        self.add(self._take(begun[: max(missing, 0)]))
        self.add([LOST] * (first - 1 - len(self.events)))

    def untold_calls(self) -> list[tuple[str, Json]]:
        """Results that the tool workers told of, in the order in which they came."""
        return self._take(self._calls)

    def _take(self, calls: Sequence[Call]) -> list[tuple[str, Json]]:
        self._calls = [call for call in self._calls if call not in calls]
        return [("tool_call.completed", completed(call)) for call in calls]


def _told_by_the_turn(journal: Sequence[Step]) -> frozenset[str]:
    entries = (entry for step in journal if step.kind == "events" for entry in step.payload["log"])
    return frozenset(entry["data"]["id"] for entry in entries if entry.get("type") == "tool_call.completed")


def _is_told_by_its_worker(call: Call) -> bool:
    """A call that never ran was told of by the turn; one that the turn's end cancelled, by the final event alone."""
    return call.worker is not None and not call.is_open and call.status != "cancelled"


def _entries(log: Sequence[Json], replies: dict[int, str]) -> Iterator[tuple[str, Json]]:
    for entry in log:
        if "cuts" in entry:
            yield from _deltas(replies.get(entry["reply"], ""), entry["cuts"])
        elif "lost" in entry:
            yield from [LOST] * entry["lost"]
        else:
            yield entry["type"], entry["data"]


def _deltas(text: str, cuts: Sequence[int]) -> Iterator[tuple[str, Json]]:
    # What turns of older versions said after a tool call was not parted from what they said before it.
    begin = len(BETWEEN_REPLIES) if text.startswith(BETWEEN_REPLIES) and sum(cuts) < len(text) else 0
    for length in cuts:
        yield "output_text.delta", {"text": text[begin : begin + length]}
        begin += length


def queued(turn: Turn) -> Json:
    """The data of ``turn.queued``."""
    return {"turn_id": turn.id, "session_id": turn.session_id, "seq": turn.seq}


def completed(call: Call) -> Json:
    """The data of ``tool_call.completed``."""
    return call.as_json()
