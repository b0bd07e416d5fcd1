"""I21: whoever waits for another agent gets its answer, and nobody works for a turn that has ended."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from loom_worker.core.values.calls import Call
from loom_worker.core.values.turns import UNFINISHED
from tests.chaos.checks_results import stored
from tests.chaos.checks_runs import answer_of
from tests.chaos.excuses import is_disturbed_between
from tests.chaos.facts import Facts, TurnFact
from tests.chaos.records import Evidence
from tests.chaos.verdict import Violation

ASKING = ("ask_agent", "delegate")
"""Tools whose calls are answered by a turn of another agent."""
MOST_DEPTH = 3
"""Turns that wait for one, each for the next."""
UNASKED = ("failed", "denied", "cancelled", "timeout")
"""Ends of a call that asked nobody: it was refused, or its turn ended first."""
TO_STOP_S = 2.0
"""Between the moment that a turn has as its end, or a call, and the commit that asks the turn below to end."""


def check_agent_calls(_evidence: Evidence, facts: Facts) -> Iterator[Violation]:
    """I21: a call that waited for an agent asked for one turn of that agent, and each such turn was asked for by one.

    The turn knows who waits for it, and has the question as its input, or begins with it where the question was large.
    A call that is completed has a turn that is completed.
    """
    named: dict[str, list[str]] = defaultdict(list)
    for turn, call in _asking(facts):
        if call.child_turn_id is None:
            if call.sends or call.status not in UNASKED:
                yield _i21(turn, f"{call.id} is {call.status}, was begun {call.sends} times, and asked for no turn")
            continue
        named[call.child_turn_id].append(turn.id)
        child = facts.by_id.get(call.child_turn_id)
        if child is None:
            yield _i21(turn, f"{call.id} asked for {call.child_turn_id}, which is not in the database")
            continue
        yield from (_i21(turn, f"{call.id} asked for {child.name}, {flaw}") for flaw in _flaws(turn, call, child))
    for turn in facts.turns:
        askers = named.get(turn.id, [])
        if askers != [parent for parent in (turn.row["parent_turn_id"],) if parent]:
            yield _i21(turn, f"works for {turn.row['parent_turn_id']}, and the calls that asked for it are of {askers}")


def _flaws(turn: TurnFact, call: Call, child: TurnFact) -> Iterator[str]:
    if child.row["agent"] != call.arguments["agent"]:
        yield f"of {child.row['agent']} instead of {call.arguments['agent']}"
    question = str(call.arguments.get("message") or call.arguments.get("task"))
    if child.mark != question.split()[0]:
        yield f"which was asked {child.row['input'][:60]!r} instead of {question[:60]!r}"
    above = [each.turn_id for each in child.turn.ancestors]
    if above != [*(each.turn_id for each in turn.turn.ancestors), turn.id]:
        yield f"for which {above} wait"
    if call.status == "completed" and child.status != "completed":
        yield f"is completed, and that turn is {child.status}"


def check_agent_answers(evidence: Evidence, facts: Facts) -> Iterator[Violation]:
    """I21: what a completed call gives is its turn's answer, or the preview of a reference that has it whole."""
    for turn, call in _asking(facts):
        child = facts.by_id.get(call.child_turn_id or "")
        if call.status != "completed" or child is None:
            continue
        answer = answer_of(child)
        if call.ref is None and call.content != answer:
            yield _i21(turn, f"{call.id} gave {call.content!r}, {child.name} has answered {answer!r}")
        if call.ref is not None:
            row = facts.blobs.get(call.ref)
            kept = None if row is None else stored(evidence.home, row)
            if kept is None or row is None or kept.decode() != answer or row["lane"] != child.row["lane"]:
                yield _i21(turn, f"{call.id} gave {call.ref}, which is not the answer of {child.name}")
            elif not any((each["ref"], each["lane"]) == (call.ref, turn.row["lane"]) for each in facts.passed):
                yield _i21(turn, f"{call.id} gave {call.ref}, which its session may not read")
            if call.ref not in (call.content or ""):
                yield _i21(turn, f"{call.id} does not name {call.ref}")


def check_agent_chains(_evidence: Evidence, facts: Facts) -> Iterator[Violation]:
    """I21: at most three turns wait for one, and no agent is asked that waits for the answer itself."""
    for turn in facts.turns:
        agents = [each.agent for each in turn.turn.ancestors]
        if len(agents) > MOST_DEPTH:
            yield _i21(turn, f"has {len(agents)} turns that wait for it")
        if twice := [agent for agent, times in Counter([*agents, turn.row["agent"]]).items() if times > 1]:
            yield _i21(turn, f"asks {twice[0]} again, within {agents}")


def check_agent_ends(evidence: Evidence, facts: Facts) -> Iterator[Violation]:
    """I21: nothing goes on for nobody: when a turn has ended, or has given up a call, so has what it asked for.

    A turn that ends after the one that waits for it was cancelled with it. One that its call gave up, for want of time
    or because its turn is to end, is cancelled too, unless it ended by itself at that moment.
    Ends are taken from the clock before they are committed, so what is close together, or disturbed, says nothing.
    """
    for turn, call in _asking(facts):
        child = facts.by_id.get(call.child_turn_id or "")
        if child is None:
            continue  # see check_agent_calls
        if turn.status not in UNFINISHED and child.status in UNFINISHED:
            yield _i21(turn, f"is {turn.status}, and {child.name} is {child.status}")
            continue
        if turn.status in UNFINISHED and child.status not in UNFINISHED:
            yield _i21(turn, f"is {turn.status}, and waits for {child.name}, which is {child.status}")
        ended_ms, known_ms = child.row["completed_ms"] or 0, turn.row["completed_ms"] or 0
        is_late = ended_ms > known_ms + TO_STOP_S * 1000 and not is_disturbed_between(evidence, known_ms, ended_ms)
        if known_ms and is_late and child.row["cancel"] is None:
            yield _i21(turn, f"is {turn.status}, and {child.name} went on and is {child.status}")
        if call.status in ("timeout", "cancelled") and child.status == "completed":
            late_s = (ended_ms - (call.finished_ms or 0)) / 1000
            if late_s > TO_STOP_S:
                yield _i21(turn, f"has given up {call.id}, and {child.name} went on for {late_s:.1f} s")


def _asking(facts: Facts) -> Sequence[tuple[TurnFact, Call]]:
    return [(turn, call) for turn in facts.turns for call in turn.calls if call.name in ASKING]


def figures_of(facts: Facts) -> Mapping[str, float]:
    """How many calls asked agents, how they ended, and how deep that went."""
    calls = [call for _, call in _asking(facts) if call.child_turn_id is not None]
    states = Counter(message["status"] for message in facts.agent_messages)
    return {
        "agent_calls": len(calls),
        **{f"agent_calls_{status}": n for status, n in sorted(Counter(call.status for call in calls).items())},
        "agent_calls_refused": sum(call.child_turn_id is None for _, call in _asking(facts)),
        "agent_answers_by_reference": sum(call.ref is not None for call in calls),
        "agent_depth": max((len(turn.turn.ancestors) for turn in facts.turns), default=0),
        "agent_messages": len(facts.agent_messages),
        **{f"agent_messages_{status}": n for status, n in sorted(states.items())},
    }


def _i21(turn: TurnFact, text: str) -> Violation:
    return Violation("I21", f"{turn.name}: {text}")
