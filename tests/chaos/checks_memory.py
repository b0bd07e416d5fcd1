"""I11 in the database: what was said is in one layer of its session's memory, and in one alone.

A layer is a span of message numbers: of each snapshot, of L2 (the summaries since the last one), of L1.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from loom_worker.core.settings_tree import LlmSettings
from loom_worker.llm import tokens
from loom_worker.memory.pressure import batch, l1_room
from loom_worker.memory.results import Sizes
from loom_worker.store import rows
from tests.chaos.agent_plan import MAY_CALL
from tests.chaos.facts import Facts, Row, TurnFact
from tests.chaos.records import Evidence
from tests.chaos.summaries import notes_in
from tests.chaos.verdict import Violation

L1, L2 = "L1", "L2"
HEURISTIC = "heuristic"
NO_MEMORY: Row = {
    "version": 0,
    "first_n": 0,
    "l2_text": "",
    "l2_from_n": 0,
    "changes": None,
    "due_ms": None,
    "held_by": None,
}
"""Of a session that has no row."""


@dataclass(frozen=True)
class Span:
    """A layer: the messages from one number to another, and the text that stands for them."""

    name: str
    from_n: float
    to_n: float
    text: str = ""

    def has(self, n: int) -> bool:
        """True of the number of a message that is in it."""
        return self.from_n <= n <= self.to_n


@dataclass(frozen=True)
class Remembered:
    """A session's memory, and all that was ever said in it."""

    name: str
    memory: Row
    snapshots: tuple[Row, ...]
    messages: tuple[Row, ...]
    turns: tuple[TurnFact, ...]

    @property
    def changes(self) -> list[Row]:
        """Those that the memory still knows, the oldest first."""
        return list(self.memory["changes"] or ())

    @property
    def spans(self) -> Sequence[Span]:
        """All layers, the oldest first."""
        kept = [Span(each["id"], each["from_n"], each["to_n"], each["content"]) for each in self.snapshots]
        first_n, l2_from_n = self.memory["first_n"], self.memory["l2_from_n"]
        if l2_from_n:
            kept.append(Span(L2, l2_from_n, first_n - 1, self.memory["l2_text"]))
        return [*kept, Span(L1, first_n, math.inf)]


def remembered(facts: Facts) -> Iterator[Remembered]:
    """Every session with its memory."""
    for session in facts.sessions:
        lane = session["lane"]
        memory = facts.memories.get(lane, NO_MEMORY)
        said, turns = facts.messages_by_lane.get(lane, ()), facts.by_lane.get(lane, ())
        yield Remembered(session["id"], memory, facts.snapshots.get(lane, ()), said, turns)


def check_layers(_evidence: Evidence, facts: Facts) -> Iterator[Violation]:
    """I11: snapshots, L2 and L1 together hold every message of a session, each once, and whole turns of them.

    Each span begins and ends with a message of the session (L1 begins behind one), and the spans follow one another.
    """
    for one in remembered(facts):
        yield from (_i11(one, flaw) for flaw in (*_holes(one), *_torn(one), *_ends(one)))


def _holes(one: Remembered) -> Iterator[str]:
    for message in one.messages:
        holders = [span.name for span in one.spans if span.has(message["n"])]
        if len(holders) != 1:
            yield f"message {message['n']} is in {' and in '.join(holders) or 'no layer'}"


def _torn(one: Remembered) -> Iterator[str]:
    for span in one.spans:
        inside = {message["turn_id"] for message in one.messages if span.has(message["n"])}
        outside = {message["turn_id"] for message in one.messages if not span.has(message["n"])}
        yield from (f"{turn_id} is only in part in {span.name}" for turn_id in sorted(inside & outside))


def _ends(one: Remembered) -> Iterator[str]:
    known = {message["n"] for message in one.messages}
    for span in one.spans:
        ends = {span.from_n, span.to_n} if span.name != L1 else {span.from_n - 1} if span.from_n else set()
        yield from (f"{span.name} ends at {end}, no message of the session" for end in sorted(ends - known))
    for before, after in pairwise(one.spans):
        if not before.from_n <= before.to_n < after.from_n:
            yield f"{before.name} ({before.from_n} to {before.to_n}) is not before {after.name} ({after.from_n})"


def check_changes(_evidence: Evidence, facts: Facts) -> Iterator[Violation]:
    """I11: no change of a memory is applied twice or left out.

    A memory's version counts its changes: those it still knows (the last ten) have the numbers up to it, one each.
    A snapshot that a change names is there, and no two changes name the same. Where all changes are known, they are
    as many snapshots as there are, and moved as many messages as L1 has lost.
    """
    for one in remembered(facts):
        version, changes = one.memory["version"], one.changes
        numbers = [change["version"] for change in changes]
        if numbers != list(range(version - len(changes) + 1, version + 1)) or len(changes) != min(
            version, rows.CHANGES
        ):
            yield _i11(one, f"is at version {version} by the changes {numbers}")
        named = [change["snapshot_id"] for change in changes if change["kind"] == "snapshot"]
        kept = [snapshot["id"] for snapshot in one.snapshots]
        if len(set(named)) < len(named) or not set(named) <= set(kept):
            yield _i11(one, f"its changes name the snapshots {named}, there are {kept}")
        if version <= len(changes):
            yield from (_i11(one, flaw) for flaw in _sums(one, named))


def _sums(one: Remembered, named: Sequence[str]) -> Iterator[str]:
    if len(named) != len(one.snapshots):
        yield f"has {len(one.snapshots)} snapshots by {len(named)} changes"
    moved = sum(change["messages"] for change in one.changes if change["kind"] != "summarized")
    gone = sum(message["n"] < one.memory["first_n"] for message in one.messages)
    if moved != gone:
        yield f"its changes took {moved} messages out of L1, {gone} are gone"


def check_notes(_evidence: Evidence, facts: Facts) -> Iterator[Violation]:
    """I11: the summaries in a layer are of its own turns, each of one part and each there once.

    A summary of ours names its turns. In a text that stands for a span each one is of turns of that span, or, within
    a digest that was made without the model, of earlier ones; none comes twice. Where the model wrote all that L2
    holds, its summaries are as many as the changes that made them, and name all turns of the span.
    """
    for one in remembered(facts):
        for span in one.spans[:-1]:
            yield from (_i11(one, f"{span.name}: {flaw}") for flaw in _foreign(one, span))
            if span.name == L2:
                yield from (_i11(one, f"{span.name}: {flaw}") for flaw in _missing(one, span))


def _foreign(one: Remembered, span: Span) -> Iterator[str]:
    own = set(_marks(one, span))
    earlier = {turn.mark for turn in one.turns if any(message["n"] < span.from_n for message in turn.messages)}
    notes = notes_in(span.text)
    for number, times in Counter(note.number for note in notes).items():
        if times > 1:
            yield f"summary {number} is there {times} times"
    for note in notes:
        if not (set(note.marks) <= own or set(note.marks) <= earlier):
            yield f"summary {note.number} is of {', '.join(note.marks)}, it stands for {', '.join(sorted(own))}"


def _missing(one: Remembered, span: Span) -> Iterator[str]:
    snapshots = [place for place, change in enumerate(one.changes) if change["kind"] == "snapshot"]
    since = one.changes[snapshots[-1] + 1 :] if snapshots else one.changes
    since = [change for change in since if change["kind"] != "summarized"]
    is_all = bool(snapshots) or one.memory["version"] <= len(one.changes)
    if not is_all or any(change["by"] == HEURISTIC for change in since):
        return
    own = set(_marks(one, span))
    marks = [mark for note in notes_in(span.text) if set(note.marks) & own for mark in note.marks]
    if marks != _marks(one, span):
        yield f"its summaries are of {marks}, it stands for {_marks(one, span)}"
    notes = sum(bool(set(note.marks) & own) for note in notes_in(span.text))
    if notes != len(since):
        yield f"has {notes} summaries by {len(since)} changes"


def _marks(one: Remembered, span: Span) -> list[str]:
    return [turn.mark for turn in one.turns if turn.messages and span.has(turn.messages[0]["n"])]


def check_settled(evidence: Evidence, facts: Facts) -> Iterator[Violation]:
    """I11: at rest no memory is held, none is due, and no L1 is over its marks.

    The pressure is looked at as Loom does it, in the messages as they are stored. It is a turn's end that has L1
    compressed, so a session whose last turn did not complete may be over them until its next one.
    """
    if not evidence.turn_calls:
        return
    model = str(evidence.turn_calls[0].body["model"])
    count = partial(tokens.count, model=model)
    room = l1_room(
        evidence.budget_tokens,
        policy=evidence.memory,
        most_tokens=LlmSettings().l1_tokens,
        typical=tokens.typical(model),
    )
    for one in remembered(facts):
        if one.memory["held_by"] is not None:
            yield _i11(one, f"is held by {one.memory['held_by']}")
        if one.memory["due_ms"] is not None:
            yield _i11(one, "is still due")
        if ":run_" in one.name or any(turn.row["agent"] in MAY_CALL for turn in one.turns):
            continue  # agents that work together have rules of their own: nothing is compressed (world.py)
        l1 = [rows.message(message) for message in one.messages if message["n"] >= one.memory["first_n"]]
        over = batch(l1, room=room, policy=evidence.memory, sizes=Sizes(count))
        last = next((turn for turn in reversed(one.turns) if turn.messages), None)
        if over and last and last.status == "completed":
            yield _i11(one, f"{len(over.messages)} of {len(l1)} messages should have left L1 ({over.level})")


def _i11(one: Remembered, text: str) -> Violation:
    return Violation("I11", f"memory of {one.name}: {text}")
