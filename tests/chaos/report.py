"""What a run was like, for people and for programs."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from tests.chaos.mutants import MUTANTS
from tests.chaos.play import Outcome
from tests.chaos.recovery import quantile

MOST_SHOWN = 12
"""Violations and exits of one scenario that are printed."""


def numbers(outcome: Outcome) -> dict[str, Any]:
    """All figures of one scenario."""
    broken = [violation.invariant for violation in outcome.violations]
    return {
        **{name: round(number, 4) for name, number in outcome.numbers.items()},
        "recovery_p50_s": _rounded(quantile(outcome.recoveries_s, 0.5)),
        "recovery_p99_s": _rounded(quantile(outcome.recoveries_s, 0.99)),
        "recoveries": len(outcome.recoveries_s),
        "accepted": len(outcome.evidence.submitted),
        "exits": len(outcome.exits),
        "broken": {name: broken.count(name) for name in sorted(set(broken))},
    }


def lines(outcome: Outcome) -> Iterator[str]:
    """The report of one scenario."""
    found = numbers(outcome)
    injected = ", ".join(f"{kind} {count}" for kind, count in sorted(outcome.injected.items()))
    yield f"   injected: {injected or 'nothing'}"
    ends = ", ".join(f"{n} {name.removeprefix('turns_')}" for name, n in found.items() if name.startswith("turns_"))
    yield f"   turns: {found['accepted']} accepted, {ends}; {found['retries']:.0f} requests tried again"
    yield (
        f"   lost {_count(outcome, 'I1')}, doubled {_count(outcome, 'I2')}, reordered {_count(outcome, 'I3')};"
        f" webhooks {found['webhooks_delivered']} of {found['webhooks_wanted']} delivered in"
        f" {found['webhook_requests']} requests, {found['replayed']:.0f} asked for anew"
    )
    yield (
        f"   model: {found['model_requests']} requests, {found['model_replies_repeated']} replies paid for twice"
        f" ({found['model_repeated_share']:.2%}); tools: {found['tool_effects']} effects,"
        f" {found['tool_effects_repeated']} repeated"
    )
    yield (
        f"   people: {found['decisions']} decisions, {found['decisions_tried_again']} sent more than once;"
        f" {found['large_results']} large results"
    )
    yield (
        f"   memory: {found['memory_changes']} changes ({found['memory_heuristic_share']:.0%} of the latest without the"
        f" model), {found['memory_snapshots']} snapshots; {found['summary_requests']} summaries asked for,"
        f" {found['summary_replies_repeated']} paid for twice"
    )
    yield (
        f"   judges: {found['judged_answers']} answers, {found['answers_given_anew']} given anew;"
        f" {found['judge_requests']} requests, {found['verdicts_repeated']} verdicts paid for twice,"
        f" {found['verdicts_dead']} dead"
    )
    yield (
        f"   budgets: {found['over_budget']} turns ended for want of one, {found['unpaid']:.0f} were refused; readers:"
        f" {found['read']}, {found['read_resumed']} of them cut off meanwhile"
    )
    if found["runs"]:
        run_ends = ", ".join(f"{n} {name.removeprefix('runs_')}" for name, n in found.items() if "runs_" in name)
        yield (
            f"   workflows: {found['runs']} runs, {run_ends}; {found['run_stages']} stages asked,"
            f" {found['run_stages_reused']} taken over by {found['run_retries']} retries;"
            f" {found['run_approvals']} approvals; {found['run_reads']} read, {found['run_cancels']} cancelled"
        )
    if found["agent_calls"] or found["agent_messages"]:
        ends = ", ".join(f"{n} {name.removeprefix('agent_calls_')}" for name, n in found.items() if "nt_calls_" in name)
        yield (
            f"   agents: {found['agent_calls']} asked, {ends}; {found['agent_answers_by_reference']} answers by"
            f" reference, {found['agent_depth']} deep; {found['agent_messages']} messages,"
            f" {found.get('agent_messages_done', 0)} done"
        )
    yield (
        f"   a killed worker's turn was taken up after {found['recovery_p50_s']} s (p50),"
        f" {found['recovery_p99_s']} s (p99), {found['recoveries']} turns"
    )
    yield (
        f"   {found['seconds']:.0f} s: ready after {found['ready_s']:.1f}, worked {found['worked_s']:.0f},"
        f" at rest after {found['rested_s']:.1f}"
    )
    failures = Counter(_failure(json.loads(poll.body)) for poll in outcome.evidence.polled)
    yield from (f"   {count} {why}" for why, count in sorted(failures.items()) if why)
    yield from (f"   left out: {one}" for one in outcome.left_out)
    yield from (f"   ended by itself: {one}" for one in outcome.exits[:MOST_SHOWN])
    yield f"   violations: {len(outcome.violations)} {found['broken'] or ''}"
    yield from (f"   {each.invariant}: {each.text[:300]}" for each in outcome.violations[:MOST_SHOWN])


def is_noticed(mutant: str, outcome: Outcome) -> bool:
    """True if every bug of this mutant broke an invariant it should."""
    broken = {violation.invariant for violation in outcome.violations}
    return all(broken & set(MUTANTS[name][0]) for name in mutant.split(","))


def _failure(turn: dict[str, Any]) -> str:
    """Why a turn failed, empty for all others."""
    error = turn["error"] or {}
    is_failed = turn["status"] in ("failed", "incomplete")
    message = error.get("message", "")[:160]
    # What is used of a budget is another figure each time.
    message = message.partition(":")[0] if turn["reason"] == "budget" else message
    return f"{turn['status']} ({turn['reason']}): {message}" if is_failed else ""


def _count(outcome: Outcome, invariant: str) -> int:
    return sum(violation.invariant == invariant for violation in outcome.violations)


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 2)
