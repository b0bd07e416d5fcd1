"""One verdict of one judge: the judge's means are put together, and what it says becomes a row."""

from dataclasses import replace
from functools import partial
from pathlib import Path

from loom_worker.core.stopping import retry_until_stored
from loom_worker.core.values.budgets import Payer, Settlement
from loom_worker.core.values.judges import PanelMember, Verdict
from loom_worker.judge.evaluate import Evaluation, JudgeModel, Judging
from loom_worker.judge.llm import Case
from loom_worker.llm.meter import OnBudget
from loom_worker.llm.model import Revocable
from loom_worker.store.verdicts import JudgedAnswer
from loom_worker.turn.agent_runtime import AgentRuntime
from loom_worker.turn.worker import TurnWorker


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
    opinion = found.opinion
    done = replace(
        claimed,
        status="dead" if opinion is None else "scored",
        score=None if opinion is None else opinion.score,
        critique=None if opinion is None else opinion.critique or None,
        error=found.error,
        model=found.model,
        usage=found.usage,
        finished_ms=worker.clock_ms(),
    )
    settlement = Settlement(payer, found.usage.amount(), tuple(found.held)) if found.usage.llm_calls else None
    return done, settlement


def _evaluated(
    member: PanelMember, answer: JudgedAnswer, runtime: AgentRuntime, payer: Payer, worker: TurnWorker
) -> Evaluation:
    caller = answer.caller
    judging = Judging(
        functions=worker.judges,
        folder=Path(runtime.agent.file).parent.absolute(),
        caller=caller,
        model=_model(runtime, payer, worker),
    )
    case = Case(caller.turn_id, answer.question, answer.answer, answer.results)
    return retry_until_stored(partial(judging.evaluate, member, case), stopping=worker.stopping)


def _model(runtime: AgentRuntime, payer: Payer, worker: TurnWorker) -> JudgeModel | None:
    judge = runtime.judge
    if judge is None:
        return None
    paid = OnBudget(judge.model, worker.budgets, payer, judge.count)
    asked = Revocable(paid, partial(worker.memories.is_there, payer.lane))
    return JudgeModel(paid, asked, judge.count, judge.budget_tokens)
