"""I9 and I10: what is left afterwards, and whether the run was worth its name."""

from collections import Counter
from collections.abc import Iterator

from loom_worker.core.values.turns import UNFINISHED
from tests.chaos.facts import Facts, TurnFact
from tests.chaos.records import Evidence
from tests.chaos.verdict import Violation

LEAST_COMPLETED = 0.99
"""Share of the turns that were meant to succeed."""
CHILD_S = 0.5
"""For the kernel to end the children of a process that died."""


def check_rest(evidence: Evidence, facts: Facts) -> Iterator[Violation]:
    """I9: at rest nothing is held, open, orphaned, broken or charged twice.

    What the run itself found (leases, unacknowledged messages, processes, files) is passed on. In the database: no
    turn is unfinished, held or parked; no call and no verdict is open; every row belongs to a turn, every message to
    one that has ended; SQLite finds its file sound; the audit has one row for each turn that has ended, in a chain
    that holds.
    """
    for leftover in evidence.leftovers:
        yield _i9(leftover)
    for fault in facts.faults:
        yield _i9(fault)
    for turn in facts.turns:
        yield from (_i9(f"{turn.name}: {text}") for text in _remains(turn))


def _remains(turn: TurnFact) -> Iterator[str]:
    if turn.status in UNFINISHED:
        yield f"is {turn.status}" + (f", with {len(turn.messages)} messages" if turn.messages else "")
    if turn.row["held_by"] is not None:
        yield f"is held by {turn.row['held_by']}"
    if turn.row["parked_until_ms"] is not None:
        yield "is parked"
    for call in turn.calls:
        if call.is_open:
            yield f"its call {call.id} is {call.status}"
    for verdict in turn.verdicts:
        if verdict["status"] in ("pending", "running"):
            yield f"the verdict of {verdict['name']} on reply {verdict['reply_n']} is {verdict['status']}"


def check_children(evidence: Evidence, facts: Facts) -> Iterator[Violation]:
    """I9: no child process does anything once the worker that started it is dead."""
    for effect in evidence.effects:
        died_s = evidence.deaths.get(effect.worker)
        if died_s is not None and effect.at_s > died_s + CHILD_S:
            yield _i9(f"{effect.tool} {effect.nonce} ran on for {effect.at_s - died_s:.1f} s after its worker's death")


def check_progress(evidence: Evidence, facts: Facts) -> Iterator[Violation]:
    """I10: the run did what it set out to do, every witness saw something, and the turns got done.

    Something was injected; each planned crash point killed somebody; turns were accepted, polled to their end and
    reached the model. Of the turns that nobody meant to fail and nobody asked to cancel, 99 % completed.
    """
    if not evidence.injections:
        yield _i10("nothing was injected: the run proves nothing")
    hit = Counter(each.target for each in evidence.injections if each.kind == "crash")
    for point in evidence.planned_points:
        if not hit[point]:
            yield _i10(f"crash point {point} was planned and never hit")
    if any(sent.asks_person and not sent.may_fail for sent in evidence.submitted) and not evidence.decided:
        yield _i10("no decision was made: that witness is blind")
    seen = {"turn was accepted": evidence.submitted, "turn was polled": evidence.polled}
    for what, witness in {**seen, "request reached the model": evidence.model_calls}.items():
        if not witness:
            yield _i10(f"no {what}: that witness is blind")
    meant = [sent for sent in evidence.submitted if not sent.may_fail and not sent.cancel_actions]
    failed = [sent for sent in meant if not _is_completed(facts, sent.turn_id)]
    if len(failed) > (1 - LEAST_COMPLETED) * len(meant):
        names = ", ".join(f"{sent.mark} {_ending(facts, sent.turn_id)}" for sent in failed[:10])
        yield _i10(f"{len(failed)} of {len(meant)} turns did not complete: {names}")


def _is_completed(facts: Facts, turn_id: str) -> bool:
    return turn_id in facts.by_id and facts.by_id[turn_id].status == "completed"


def _ending(facts: Facts, turn_id: str) -> str:
    turn = facts.by_id.get(turn_id)
    return "is lost" if turn is None else f"{turn.status} ({turn.row['reason']}: {turn.row['error']})"


def _i9(text: str) -> Violation:
    return Violation("I9", text)


def _i10(text: str) -> Violation:
    return Violation("I10", text)
