"""The event log of a turn, made anew from its journal. Pure.

The journal's ``events`` rows say which events the turn wrote and with which ids; the text of deltas is cut out of the
reply they belong to. Events that a dead attempt wrote, and that nobody can tell any more, become empty deltas, so
that every later event keeps its id and a reader that resumes finds no gap.
"""

from collections.abc import Iterable, Iterator, Sequence

from loom_worker.values.events import Event
from loom_worker.values.json import Json
from loom_worker.values.turns import Call, Step, Turn

LOST = ("output_text.delta", {"text": ""})


def rebuild(turn: Turn, journal: Sequence[Step]) -> tuple[Event, ...]:
    """The events of a turn so far, with a final one if it has ended."""
    replies = {step.n: str(step.payload["text"]) for step in journal if step.kind == "reply"}
    told = _Told(turn)
    for step in journal:
        if step.kind == "events":
            told.fill_up_to(int(step.payload["first"]))
            told.add(_entries(step.payload["log"], replies))
    told.add(told.untold_calls())
    if turn.is_finished:
        told.add([(f"turn.{turn.status}", turn.as_json())])
    return tuple(told.events)


class _Told:
    """The log as far as it has been retold."""

    def __init__(self, turn: Turn) -> None:
        self.events: list[Event] = []
        closed = [call for call in turn.calls if call.worker is not None and not call.is_open]
        self._calls = sorted(closed, key=lambda call: (call.finished_ms or 0, call.position))
        self.add([("turn.queued", queued(turn))])

    def add(self, entries: Iterable[tuple[str, Json]]) -> None:
        for kind, data in entries:
            self.events.append(Event(len(self.events) + 1, kind, data))

    def fill_up_to(self, first: int) -> None:
        """What stands before an id and was not written by the turn itself: results of its tools, then what is lost."""
        missing = first - 1 - len(self.events)
        self.add(self.untold_calls(max(missing, 0)))
        self.add([LOST] * (first - 1 - len(self.events)))

    def untold_calls(self, most: int | None = None) -> list[tuple[str, Json]]:
        """Results that the tool workers told of, in the order in which they came."""
        taken = self._calls if most is None else self._calls[:most]
        self._calls = self._calls[len(taken) :]
        return [("tool_call.completed", completed(call)) for call in taken]


def _entries(log: Sequence[Json], replies: dict[int, str]) -> Iterator[tuple[str, Json]]:
    for entry in log:
        if "cuts" in entry:
            yield from _deltas(replies.get(entry["reply"], ""), entry["cuts"])
        elif "lost" in entry:
            yield from [LOST] * entry["lost"]
        else:
            yield entry["type"], entry["data"]


def _deltas(text: str, cuts: Sequence[int]) -> Iterator[tuple[str, Json]]:
    begin = 0
    for length in cuts:
        yield "output_text.delta", {"text": text[begin : begin + length]}
        begin += length


def queued(turn: Turn) -> Json:
    """The data of ``turn.queued``."""
    return {"turn_id": turn.id, "session_id": turn.session_id, "seq": turn.seq}


def completed(call: Call) -> Json:
    """The data of ``tool_call.completed``."""
    return call.as_json()
