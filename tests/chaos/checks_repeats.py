"""I8: nothing is paid for twice but what was under way when its process died, and some things never."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tests.chaos.excuses import Excuses, cancelled_turns
from tests.chaos.facts import Facts, TurnFact, grouped
from tests.chaos.model_script import is_folded, stage_of
from tests.chaos.records import Effect, Evidence, ModelCall
from tests.chaos.verdict import Violation

Stages = Mapping[tuple[str, int], Sequence[ModelCall]]


def check_model_calls(evidence: Evidence, facts: Facts) -> Iterator[Violation]:
    """I8: a reply is asked for again only if the one before was lost with its process.

    Requests of one turn that hold the same number of its replies ask for the same reply. Two things are forbidden:
    to ask for a reply that the journal has; and to ask again after a whole reply that did not get into the journal,
    unless its worker died within moments of it, or may have lost the turn while living (see excuses). Replies that
    the server did not send whole (faults, clients that went away) may be asked for again. A turn that its client
    cancelled may leave a reply unused. A mark that the database does not know was never claimed.
    """
    excuses = Excuses(evidence)
    cancelled = cancelled_turns(evidence, facts)
    cancelled_marks = {sent.mark for sent in evidence.submitted if sent.turn_id in cancelled}
    cancelled_marks |= {turn.mark for turn in facts.turns if turn.id in cancelled}
    for (mark, stage), calls in stages(evidence).items():
        turns = facts.by_mark.get(mark, ())
        if not turns:
            yield _i8(f"{mark or '(no mark)'}: the model was asked for a turn that is not in the database")
            continue
        kept = frozenset(name for turn in turns for name in turn.kept)
        journaled_s = min((call.ended_s for call in calls if (mark, call.nth) in kept), default=float("inf"))
        for call in calls:
            if call.began_s > journaled_s and not excuses.disturbed(call):
                yield _i8(f"{mark}: reply {stage + 1} is journaled and was asked for again, request {call.number}")
        for call in repeated(calls, kept):
            if mark not in cancelled_marks and not excuses.lost(call):
                yield _i8(f"{mark}: reply {stage + 1} was whole (request {call.number}), unused, and asked for again")


def stages(evidence: Evidence) -> Stages:
    """The requests that ask for the same reply: by mark and number of replies before, in order of arrival.

    Those that had no room for the turn's first replies are left out, for their number is not known.
    """
    calls = in_order(call for call in evidence.turn_calls if not is_folded(call.body))
    return grouped(calls, lambda call: (call.mark, stage_of(call.body)))


def in_order(calls: Iterable[ModelCall]) -> Sequence[ModelCall]:
    """As they arrived."""
    return sorted(calls, key=lambda call: call.began_s)


def repeated(calls: Sequence[ModelCall], kept: frozenset[tuple[str, int]] = frozenset()) -> Iterator[ModelCall]:
    """Of the requests for one reply, verdict or summary those that were answered whole, in vain, and made again."""
    return (call for call in calls[:-1] if call.is_complete and (call.mark, call.nth) not in kept)


def check_tools(evidence: Evidence, facts: Facts) -> Iterator[Violation]:
    """I8: a tool that is not idempotent never does its thing twice; others only where a process died over it.

    Where a worker that lives was given up, once for each sending is right.
    Every effect belongs to a call of the database, for a reply is journaled before its calls run; every call that is
    stored as completed had its effect.
    """
    excuses = Excuses(evidence)
    effects = grouped(evidence.effects, lambda effect: effect.nonce)
    calls = {call.arguments.get("nonce"): call for turn in facts.turns for call in turn.calls}
    for nonce, same in effects.items():
        *before, last = sorted(same, key=lambda effect: effect.at_s)
        call = calls.get(nonce)
        most = excuses.most_times(call.sends, call.sent_ms) if call else 1
        if before and last.tool in evidence.single_effect_tools:
            yield _i8(f"{last.tool} {nonce} ran {len(same)} times and must not run twice")
        elif len(same) > most and not all(excuses.undone(effect) for effect in before):
            yield _i8(f"{last.tool} {nonce} ran {len(same)} times, and no process died over it")
    yield from _calls_and_effects(facts.turns, effects)


def _calls_and_effects(turns: Sequence[TurnFact], effects: Mapping[str, Sequence[Effect]]) -> Iterator[Violation]:
    known: set[str] = set()
    for turn in turns:
        for call in turn.calls:
            nonce = call.arguments.get("nonce")
            if nonce is None:
                continue
            known.add(nonce)
            if call.status == "completed" and nonce not in effects:
                yield _i8(f"{turn.name}: {call.name} {nonce} is stored as completed and had no effect")
    for nonce in sorted(effects.keys() - known):
        yield _i8(f"{effects[nonce][0].tool} {nonce} ran for no call of the database")


def _i8(text: str) -> Violation:
    return Violation("I8", text)
