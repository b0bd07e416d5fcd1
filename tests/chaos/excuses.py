"""Which calls may have been lost to what was done to the system. Pure.

A process that is killed loses what it had not saved. That it was *this* process' call is seen from the call's
connection: it ends with the process. What takes a turn from a worker that lives (a broker that forgot its leases, a
worker that was stopped) leaves the connection as it was, so there the moment alone decides.
"""

from collections.abc import Iterable, Sequence

from tests.chaos.facts import Facts
from tests.chaos.records import Effect, Evidence, Injection, ModelCall

KILLS = frozenset({"kill", "tree", "crash", "term"})
"""They end processes."""
DISTURBS = frozenset({"broker", "flush", "swallow", "stop", "lock", "full", "database", "starved"})
"""They take turns from workers that go on living. Repeated messages, queues and clocks must cost nothing."""
JUST_BEFORE_S = 5.0
"""What ended so short before its process' death may not have been saved: a busy machine took 2 s for two commits."""
TO_NOTICE_S = 2.0
"""Until what was under way when a process died has come to rest."""
TO_SEE_S = 5.0
"""Until a server has seen that a connection's other end is dead: a busy one first answers what came before."""
LONG_AFTER_MS = 10_000
"""How long after a disturbance a commit may be late."""
DRAIN_S = 12.0
"""A process that was asked to end may go on for this long."""


def cancelled_turns(evidence: Evidence, facts: Facts) -> frozenset[str]:
    """Ids of turns that a client asked to cancel, themselves or with their run, and of those nobody waits for any more.

    The latter are turns whose call was closed without their answer, and whatever waits in vain below them.
    """
    own = {sent.turn_id for sent in evidence.submitted if sent.cancel_actions}
    runs = {run.id for run in facts.runs if run.row["cancel"]}
    found = own | {turn.id for run_id in runs for turn in facts.turns_by_run.get(run_id, ())}
    for turn in sorted(facts.turns, key=lambda each: len(each.turn.ancestors)):
        for call in turn.calls:
            if call.child_turn_id and (turn.id in found or call.status in ("timeout", "cancelled")):
                found.add(call.child_turn_id)
    return frozenset(found)


def is_disturbed_between(evidence: Evidence, from_ms: int, to_ms: int) -> bool:
    """True if workers that lived may have committed much later than they looked at the clock, at some time in between.

    Args:
        from_ms: milliseconds since 1970, as is ``to_ms``.
    """
    return any(
        each.at_s * 1000 <= to_ms and from_ms <= each.until_s * 1000 + LONG_AFTER_MS
        for each in evidence.injections
        if each.kind in DISTURBS
    )


class Excuses:
    """What a run's injections excuse."""

    def __init__(self, evidence: Evidence) -> None:
        self._lease_s = evidence.lease_s
        self._kills = _of(evidence.injections, KILLS)
        self._disturbs = _of(evidence.injections, DISTURBS)

    def lost(self, call: ModelCall) -> bool:
        """True if the worker that made the call died with it, or may have lost its turn during it."""
        return self.disturbed(call) or any(self._died(call, kill) for kill in self._kills)

    def disturbed(self, call: ModelCall) -> bool:
        """True if a worker that lives may have lost its turn during the call, or made it without knowing that."""
        return self._is_disturbed(call.began_s, call.ended_s)

    def most_times(self, sends: int, sent_ms: int | None) -> int:
        """How often what was sent so often may be done without a death: once for each sending, or once at all.

        A worker that lives and was given up goes on with what it was sent, however late.

        Args:
            sent_ms: when it was sent last, in milliseconds since 1970.
        """
        return sends if sends > 1 and sent_ms and self._is_disturbed(sent_ms / 1000, sent_ms / 1000) else 1

    def undone(self, effect: Effect) -> bool:
        """True if the worker may have died before it stored that the tool had run."""
        is_killed = any(kill.at_s - JUST_BEFORE_S <= effect.at_s <= _end(kill) + TO_NOTICE_S for kill in self._kills)
        return is_killed or self._is_disturbed(effect.at_s, effect.at_s)

    def is_calm(self, calls: Sequence[ModelCall]) -> bool:
        """True if nothing that may cost a call was done, from a while before the first to a while after the last."""
        if not calls:
            return True
        began_s = min(call.began_s for call in calls) - DRAIN_S
        ended_s = max(call.ended_s for call in calls) + DRAIN_S
        return not any(each.at_s <= ended_s and began_s <= each.until_s for each in (*self._kills, *self._disturbs))

    def _is_disturbed(self, began_s: float, ended_s: float) -> bool:
        return any(
            began_s <= each.until_s + self._lease_s + TO_NOTICE_S and each.at_s - JUST_BEFORE_S <= ended_s
            for each in self._disturbs
        )

    @staticmethod
    def _died(call: ModelCall, kill: Injection) -> bool:
        gone_s = call.connection_gone_s
        if gone_s is None or not kill.at_s - 0.1 <= gone_s <= _end(kill) + TO_SEE_S:
            return False
        return call.began_s <= _end(kill) and gone_s - call.ended_s <= JUST_BEFORE_S


def _end(kill: Injection) -> float:
    return max(kill.until_s, kill.at_s + DRAIN_S) if kill.kind == "term" else kill.until_s


def _of(injections: Iterable[Injection], kinds: frozenset[str]) -> Sequence[Injection]:
    return tuple(each for each in injections if each.kind in kinds)
