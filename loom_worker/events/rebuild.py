"""Rebuilds the event log of a turn from its journal. Pure.

The journal's ``events`` rows say which events the turn wrote and with which ids; the text of deltas is cut out of the
reply they belong to. Events that a dead attempt wrote, and that are lost, become empty deltas, so that every later
event keeps its id and a reader that resumes finds no gap.
"""

from collections.abc import Iterable, Iterator, Sequence

from loom_worker.core.values.calls import Call
from loom_worker.core.values.json import Json
from loom_worker.core.values.notifications import Event
from loom_worker.core.values.turns import BETWEEN_REPLIES, Step, Turn, continued

COMMENTARY = "output_text.commentary"  # what the turn has said before it is no part of its answer
LOST = ("output_text.delta", {"text": ""})


def rebuild(turn: Turn, journal: Sequence[Step]) -> tuple[Event, ...]:
    """The events of a turn so far, with a final one if it has ended.

    If the turn's journal has been removed: its tool calls, its answer in one piece, and the final event.
    """
    answer = turn.output_text or ""
    replies = _texts(journal, answer)
    rebuilt = _RebuiltLog(turn, journal)
    begun_before = 0  # calls of later replies had not begun when the turn wrote these entries
    for step in journal:
        if step.kind == "events":
            rebuilt.fill_up_to(int(step.payload["first"]), before_reply_n=begun_before)
            rebuilt.add(_entries(step.payload["log"], replies))
            begun_before = step.n
    rebuilt.add_remaining_calls()
    if is_purged(turn, journal) and answer:
        rebuilt.add([("output_text.delta", {"text": answer})])
    if turn.is_finished:
        rebuilt.add([(f"turn.{turn.status}", turn.as_json())])
    return tuple(rebuilt.events)


def is_purged(turn: Turn, journal: Sequence[Step]) -> bool:
    """True if the turn ran and its journal has been removed: its log is rebuilt from its row, with fewer events."""
    return turn.is_finished and turn.started_ms is not None and not journal


def _texts(journal: Sequence[Step], answer: str) -> dict[int, str]:
    """The text of each reply by its number, with the separator between it and those that it goes on with.

    The journal does not have the text of the last reply if that is the end of the turn's answer.
    """
    shown: list[Step] = []
    texts: dict[int, str] = {}
    kinds = {entry.get("type") for step in journal if step.kind == "events" for entry in step.payload["log"]}
    for step in journal:
        if step.takes_back:
            shown.clear()  # the next reply takes the place of all that was said
        if step.kind == "reply":
            former = continued(shown) if COMMENTARY in kinds else shown  # as older versions did
            before = "".join(each.payload["text"] + BETWEEN_REPLIES for each in former if each.payload["text"])
            text = step.payload["text"]
            text = answer.removeprefix(before) if text is None else str(text)
            texts[step.n] = (BETWEEN_REPLIES if before else "") + text
            shown.append(step)
    return texts


class _RebuiltLog:
    def __init__(self, turn: Turn, journal: Sequence[Step]) -> None:
        self.events: list[Event] = []
        logged = (entry for step in journal if step.kind == "events" for entry in step.payload["log"])
        by_turn = {entry["data"]["id"] for entry in logged if entry.get("type") == "tool_call.completed"}
        # The turn itself reports a call that never ran; the final event alone, one that the turn's end cancelled.
        by_worker = [
            call
            for call in turn.calls
            if call.worker is not None and not call.is_open and call.status != "cancelled" and call.id not in by_turn
        ]
        self._calls = sorted(by_worker, key=lambda call: (call.finished_ms or 0, call.position))
        self.add([("turn.queued", queued(turn))])

    def add(self, entries: Iterable[tuple[str, Json]]) -> None:
        for kind, data in entries:
            self.events.append(Event(len(self.events) + 1, kind, data))

    def fill_up_to(self, first: int, *, before_reply_n: int) -> None:
        """Add the events before an id that the turn itself did not write: results of its tools, then lost events."""
        missing = first - 1 - len(self.events)
        begun = [call for call in self._calls if call.reply_n < before_reply_n]
        self._add_calls(begun[: max(missing, 0)])
        self.add([LOST] * (first - 1 - len(self.events)))

    def add_remaining_calls(self) -> None:
        self._add_calls(self._calls)

    def _add_calls(self, calls: Sequence[Call]) -> None:
        self.add([("tool_call.completed", call.as_json()) for call in calls])
        self._calls = [call for call in self._calls if call not in calls]


def _entries(log: Sequence[Json], replies: dict[int, str]) -> Iterator[tuple[str, Json]]:
    for entry in log:
        if "cuts" in entry:
            text, cuts = replies.get(entry["reply"], ""), entry["cuts"]
            # Turns of older versions did not separate the text after a tool call from the text before it.
            begin = len(BETWEEN_REPLIES) if text.startswith(BETWEEN_REPLIES) and sum(cuts) < len(text) else 0
            for length in cuts:
                yield "output_text.delta", {"text": text[begin : begin + length]}
                begin += length
        elif "lost" in entry:
            yield from [LOST] * entry["lost"]
        else:
            yield entry["type"], entry["data"]


def queued(turn: Turn) -> Json:
    """The data of ``turn.queued``."""
    return {"turn_id": turn.id, "session_id": turn.session_id, "seq": turn.seq}
