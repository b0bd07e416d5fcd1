"""Loom's promises, checked from outside: out of what client, model server, receiver and tools saw, and the database.

``check`` gives every violation of I1 to I23, each check's docstring says what exactly is compared; ``figures`` gives
the numbers a report should show. Both read ``loom.db`` and change nothing. All of Loom must have come to rest.

checks_turns.py I1-I3 in the database · checks_calls.py I3, I6, I7 at the model · checks_told.py I4, I5 ·
checks_repeats.py I8, with excuses.py · checks_rest.py I9, I10 · checks_memory.py I11 in the database ·
checks_summaries.py I8, I11 at the model · checks_tiers.py I23 · checks_people.py I12 · checks_results.py I13 ·
checks_judges.py I8, I14 · checks_accounts.py I9, I15 · checks_traces.py I16 · checks_exports.py I17 ·
checks_runs.py I18 · checks_run_results.py I19, with run_rules.py · checks_run_told.py I20 ·
checks_agents.py I21 · checks_agent_messages.py I22 · facts.py reads the database
"""

from collections import Counter

from tests.chaos.checks_accounts import check_budgets, check_ledger
from tests.chaos.checks_agent_messages import check_order_of_messages, check_passed, check_sent, check_taken
from tests.chaos.checks_agents import (
    check_agent_answers,
    check_agent_calls,
    check_agent_chains,
    check_agent_ends,
    figures_of,
)
from tests.chaos.checks_calls import check_budget, check_history, check_overlap, check_wellformed
from tests.chaos.checks_exports import check_exported, check_requests
from tests.chaos.checks_judges import (
    check_judged,
    check_rejected,
    check_verdict_calls,
    verdict_stages,
)
from tests.chaos.checks_memory import HEURISTIC, check_changes, check_layers, check_notes, check_settled
from tests.chaos.checks_people import check_decisions, check_people
from tests.chaos.checks_repeats import check_model_calls, check_tools, repeated, stages
from tests.chaos.checks_rest import check_children, check_progress, check_rest
from tests.chaos.checks_results import check_previews, check_results
from tests.chaos.checks_run_results import check_runs_played
from tests.chaos.checks_run_told import check_run_books, check_run_events, check_run_shown, check_run_webhooks
from tests.chaos.checks_runs import (
    check_run_cancels,
    check_run_decisions,
    check_run_progress,
    check_run_retries,
    check_runs_kept,
    check_stage_turns,
)
from tests.chaos.checks_summaries import check_covered, check_summaries, summary_stages
from tests.chaos.checks_tiers import check_dated, check_embedded, check_learned
from tests.chaos.checks_told import check_read, check_shown, check_webhooks
from tests.chaos.checks_traces import check_traces
from tests.chaos.checks_turns import check_accepted, check_messages, check_order
from tests.chaos.facts import Facts, read_facts
from tests.chaos.records import Evidence
from tests.chaos.verdict import Violation

CHECKS = (
    check_accepted,
    check_messages,
    check_order,
    check_overlap,
    check_history,
    check_shown,
    check_read,
    check_webhooks,
    check_wellformed,
    check_budget,
    check_model_calls,
    check_tools,
    check_rest,
    check_children,
    check_progress,
    check_layers,
    check_changes,
    check_notes,
    check_settled,
    check_summaries,
    check_covered,
    check_dated,
    check_embedded,
    check_learned,
    check_people,
    check_decisions,
    check_results,
    check_previews,
    check_verdict_calls,
    check_judged,
    check_rejected,
    check_ledger,
    check_budgets,
    check_exported,
    check_requests,
    check_traces,
    check_runs_kept,
    check_stage_turns,
    check_run_cancels,
    check_run_retries,
    check_run_decisions,
    check_run_progress,
    check_runs_played,
    check_run_events,
    check_run_shown,
    check_run_webhooks,
    check_run_books,
    check_agent_calls,
    check_agent_answers,
    check_agent_chains,
    check_agent_ends,
    check_sent,
    check_taken,
    check_order_of_messages,
    check_passed,
)


def check(evidence: Evidence) -> tuple[Violation, ...]:
    """Return all violations, none for a run that kept every promise.

    Raises:
        sqlite3.Error: there is no database to read.
    """
    facts = read_facts(evidence.home)
    return tuple(violation for one in CHECKS for violation in one(evidence, facts))


def figures(evidence: Evidence) -> dict[str, float]:
    """What was done and what it cost: counts, and the share of calls that were made twice (0-1)."""
    facts = read_facts(evidence.home)
    replies, again = _repeats(evidence, facts)
    nonces = Counter(effect.nonce for effect in evidence.effects)
    statuses = Counter(turn.status for turn in facts.turns)
    return {
        "turns": len(facts.turns),
        **{f"turns_{status}": count for status, count in sorted(statuses.items())},
        "webhooks_wanted": sum(sent.has_webhook for sent in evidence.submitted)
        + sum(bool(started.job.hook) for started in evidence.runs.started),
        "webhooks_delivered": sum(row["status"] == "delivered" for row in facts.deliveries),
        "webhook_requests": len(evidence.hooks),
        "model_requests": len(evidence.turn_calls),
        "model_replies": replies,
        "model_replies_repeated": again,
        "model_repeated_share": again / replies if replies else 0.0,
        "tool_effects": len(evidence.effects),
        "tool_effects_repeated": len(evidence.effects) - len(nonces),
        "decisions": len(evidence.decided),
        "decisions_tried_again": sum(len(each.answers) > 1 for each in evidence.decided),
        "large_results": len(facts.blobs),
        **_memory(evidence, facts),
        **_judges(evidence, facts),
        **_runs(evidence, facts),
        **figures_of(facts),
        "traces_requests": len(evidence.exports or ()),
        "traces_spans": sum(len(each.spans) for each in evidence.exports or ()),
        **{f"injected_{kind}": count for kind, count in sorted(Counter(i.kind for i in evidence.injections).items())},
    }


def _repeats(evidence: Evidence, facts: Facts) -> tuple[int, int]:
    """Replies that were sent whole, and how many of them were in vain and asked for again."""
    again = 0
    for (mark, _), calls in stages(evidence).items():
        kept = frozenset(name for turn in facts.by_mark.get(mark, ()) for name in turn.kept)
        again += sum(1 for _ in repeated(calls, kept))
    return sum(call.is_complete for call in evidence.turn_calls), again


def _judges(evidence: Evidence, facts: Facts) -> dict[str, float]:
    """How often judges looked, what came of it, and what budgets refused."""
    stages_of = verdict_stages(evidence).values()
    return {
        "judged_answers": sum(len(turn.judged) for turn in facts.turns),
        "answers_given_anew": sum(not each["is_last"] for turn in facts.turns for each in turn.judged),
        "judge_requests": len(evidence.judge_calls),
        "verdicts_repeated": sum(1 for calls in stages_of for _ in repeated(calls)),
        "verdicts_dead": sum(row["status"] == "dead" for turn in facts.turns for row in turn.verdicts),
        "read": len(evidence.read),
        "read_resumed": sum(each.resumed > 0 for each in evidence.read),
        "over_budget": sum(turn.row["reason"] == "budget" for turn in facts.turns),
    }


def _runs(evidence: Evidence, facts: Facts) -> dict[str, float]:
    """How many runs of workflows there were, how they ended, and how many stages they had."""
    statuses = Counter(run.status for run in facts.runs)
    asked = [stage for run in facts.runs for stage in run.asked]
    return {
        "runs": len(facts.runs),
        **{f"runs_{status}": count for status, count in sorted(statuses.items())},
        "run_stages": sum(not stage["is_reused"] for stage in asked),
        "run_stages_reused": sum(stage["is_reused"] for stage in asked),
        "run_reads": len(evidence.runs.read),
        "run_cancels": len(evidence.runs.cancelled),
        "run_retries": sum(run.row["retry_of"] is not None for run in facts.runs),
        "run_approvals": sum(stage["role"] == "approval" for run in facts.runs for stage in run.stages),
    }


def _memory(evidence: Evidence, facts: Facts) -> dict[str, float]:
    """How often memories changed, and what that took; of the changes the latest ten of each session say by whom."""
    known = [change for row in facts.memories.values() for change in row["changes"] or ()]
    asked = summary_stages(evidence).values()
    return {
        "memory_changes": sum(row["version"] for row in facts.memories.values()),
        "memory_snapshots": sum(map(len, facts.snapshots.values())),
        "memory_heuristic_share": sum(change["by"] == HEURISTIC for change in known) / max(1, len(known)),
        "summary_requests": len(evidence.summary_calls),
        "summary_replies": sum(call.is_complete for call in evidence.summary_calls),
        "summary_replies_repeated": sum(1 for calls in asked for _ in repeated(calls)),
    }
