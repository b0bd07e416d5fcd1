"""One verdict of one judge: the judge's means are put together, and what it says becomes a row."""

from dataclasses import replace
from functools import partial
from pathlib import Path

from loom_worker.core.stopping import retry_until_stored
from loom_worker.core.text import clean, without_middle
from loom_worker.core.values.budgets import Payer, Settlement
from loom_worker.core.values.guardrails import StageRules
from loom_worker.core.values.judges import PanelMember, Verdict
from loom_worker.guard.rails import check
from loom_worker.guard.redact import redacted
from loom_worker.judge.evaluate import Evaluation, Judging
from loom_worker.judge.llm import Case
from loom_worker.llm.meter import OnBudget
from loom_worker.llm.model import Revocable
from loom_worker.store.verdicts import JudgedAnswer
from loom_worker.turn.agent_runtime import AgentRuntime
from loom_worker.turn.worker import TurnWorker, guardrails

MOST_CHARS = 1_000
"""Of a critique, or of why there is none."""


def scored(
    claimed: Verdict, answer: JudgedAnswer, runtime: AgentRuntime, worker: TurnWorker
) -> tuple[Verdict, Settlement | None]:
    """Have a judge look at an answer.

    Returns:
        Its verdict with what that cost, and what it takes off budgets; None: no model was asked.

    Raises:
        Interrupted: the worker stops, or the session was deleted.
    """
    caller, panel = answer.caller, runtime.agent.judges
    payer = Payer(caller.workspace, caller.lane, caller.agent, runtime.agent.budget, caller.turn_id)
    member = panel.member(claimed.name) if panel else None
    if member is None:
        found = Evaluation(None, "The agent's file has no such judge any more.")
    else:
        found = _evaluated(member, answer, runtime, payer, worker)
    opinion, rules = found.opinion, guardrails(runtime.agent, answer.rules).output
    done = replace(
        claimed,
        status="dead" if opinion is None else "undecided" if opinion.is_undecided else "scored",
        score=None if opinion is None else opinion.score,
        critique=_shown(opinion.critique if opinion else "", rules) or None,
        error=None if found.error is None else _shown(redacted(found.error), rules) or "It may not be shown.",
        model=found.model,
        usage=found.usage,
        finished_ms=worker.clock_ms(),
    )
    settlement = Settlement(payer, found.usage.amount(), tuple(found.held)) if found.usage.llm_calls else None
    return done, settlement


def _shown(text: str, rules: StageRules) -> str:
    """What a judge says as everybody may read it: it can quote an answer, and hold what that may not say."""
    found = check("output", without_middle(clean(text), MOST_CHARS), rules)
    return "" if found.blocked_for else found.kept


def _evaluated(
    member: PanelMember, answer: JudgedAnswer, runtime: AgentRuntime, payer: Payer, worker: TurnWorker
) -> Evaluation:
    caller, model, paid = answer.caller, runtime.judge, None
    if model is not None:
        paid = OnBudget(model.model, worker.budgets, payer, model.count)
        # Nothing of a deleted session is sent.
        model = replace(model, model=Revocable(paid, partial(worker.memories.is_there, payer.lane)))
    folder = Path(runtime.agent.file).parent.absolute()
    judging = Judging(functions=worker.judges, folder=folder, caller=caller, model=model, paid=paid)
    case = Case(caller.turn_id, answer.question, answer.answer, answer.results)
    return retry_until_stored(partial(judging.evaluate, member, case), stopping=worker.stopping)
