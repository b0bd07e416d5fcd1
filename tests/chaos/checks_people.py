"""I12: what needs a person runs when one has agreed, and only then."""

from collections.abc import Iterator, Mapping, Sequence

from loom_worker.core.values.calls import Call
from tests.chaos.decisions import flaws_of
from tests.chaos.facts import Facts, TurnFact, grouped
from tests.chaos.records import Decided, Effect, Evidence
from tests.chaos.verdict import Violation

SAYS = {"approve": "approved", "reject": "rejected"}
"""A verdict as the database names it."""


def check_people(evidence: Evidence, facts: Facts) -> Iterator[Violation]:
    """I12: a call that needs a person has its effect once one has agreed, and none otherwise.

    The database has the verdict that was answered 200, or one that was sent and whose answer was lost; never one that
    nobody gave. A call that is not approved has no effect, an approved one none before the person had spoken (more
    than one is I8's matter), and an approved call of a turn that completed was not denied.
    """
    decided = grouped(evidence.decided, lambda each: (each.turn_id, each.call_id))
    effects = grouped(evidence.effects, lambda effect: effect.nonce)
    for turn in facts.turns:
        for call in turn.calls:
            if call.name in evidence.asking_tools:
                found = decided.get((turn.id, call.id), ())
                flaws = (*_verdict(call, found), *_effects(turn, call, found, effects))
                yield from (_i12(f"{turn.name}: {call.name} {call.id} {flaw}") for flaw in flaws)


def _verdict(call: Call, decided: Sequence[Decided]) -> Iterator[str]:
    given = {SAYS[each.verdict] for each in decided}
    if call.approval in SAYS.values() and call.approval not in given:
        yield f"is {call.approval}, and nobody has said so"
    for each in decided:
        if each.answers[-1] == 200 and call.approval != SAYS[each.verdict]:
            yield f"is {call.approval}, and somebody was told that it is {SAYS[each.verdict]}"


def _effects(
    turn: TurnFact, call: Call, decided: Sequence[Decided], effects: Mapping[str, Sequence[Effect]]
) -> Iterator[str]:
    seen = effects.get(call.arguments.get("nonce", ""), ())
    if seen and call.approval != "approved":
        yield f"had an effect, and its approval is {call.approval}"
    if decided and any(effect.at_s < decided[0].began_s for effect in seen):
        yield "had an effect before anybody agreed"
    if call.approval == "approved" and call.status == "denied" and turn.status == "completed":
        yield "was approved, and denied all the same"


def check_decisions(evidence: Evidence, facts: Facts) -> Iterator[Violation]:
    """I12: a call is decided on once, and who decides is told the truth.

    The first decision is answered 200. It is answered 409 only where an attempt before may have arrived (its answer
    was lost, or a 5xx), or where the turn ended by itself. A call that somebody was told is decided waits for nobody
    any more, and the opposite decision is answered 409.
    """
    settled: set[tuple[str, str]] = set()
    for each in evidence.decided:
        turn = facts.by_id.get(each.turn_id)
        name = f"{turn.name if turn else each.turn_id}: {each.call_id}"
        may_have_ended = turn is None or turn.status != "completed"
        flaws = flaws_of(each.answers, each.opposed, may_have_ended=may_have_ended)
        yield from (_i12(f"{name} {flaw}") for flaw in flaws)
        if (each.turn_id, each.call_id) in settled:
            yield _i12(f"{name} was shown as waiting after it was decided")
        settled.add((each.turn_id, each.call_id))


def _i12(text: str) -> Violation:
    return Violation("I12", text)
