"""What a run does next, by its pattern and its journal. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

from loom_worker.core.values.runs import EXPIRED, Run, RunStage, RunStatus
from loom_worker.core.values.workflows import (
    Conditional,
    Coordination,
    Debate,
    Iterative,
    ParallelTasks,
    Pattern,
    Pipeline,
    Swarm,
)
from loom_worker.workflows.fan_outs import debate, fan_out, swarm
from loom_worker.workflows.sequences import Scene, conditional, coordination, iterative, pipeline
from loom_worker.workflows.steps import Gate, Question, StageAnswer, Steps, Stopped


@dataclass(frozen=True, slots=True)
class BeginStages:
    """Ask these agents, side by side."""

    asks: tuple[Question, ...]


@dataclass(frozen=True, slots=True)
class AskApproval:
    """Show a stage's output to a person."""

    gate: Gate


@dataclass(frozen=True, slots=True)
class AwaitAnswers:
    """Nothing is to be done before something has come of what was asked."""


@dataclass(frozen=True, slots=True)
class EndRun:
    """The run has ended."""

    status: RunStatus
    reason: str | None = None
    output: str | None = None
    message: str = ""
    """Why, in a sentence; empty for a run that is completed."""
    stage: str | None = None
    """The key below which a retry does everything again; None: what is completed stays."""
    error: Mapping[str, object] | None = None
    """Error of the turn that failed, as its Turn says it."""


Decision = BeginStages | AskApproval | AwaitAnswers | EndRun


def decide(pattern: Pattern, values: Mapping[str, str], run: Run, *, now_ms: int) -> Decision:
    """What a run does next.

    The pattern is played from its beginning with the answers in the journal, up to the first question that has none.
    What has failed ends the run, but not before all that was asked together has an answer: it is paid for, and a retry
    goes on with it.

    Args:
        values: of the placeholders that hold everywhere.
        run: with its stages, in the order in which they began.
    """
    if any(stage.is_open and stage.role != "approval" for stage in run.stages):
        return AwaitAnswers()
    if run.cancel is not None:
        return EndRun("cancelled", run.cancel, message="The run was cancelled.")
    journal = {stage.key: stage for stage in run.stages}
    steps, given = play(pattern, Scene(values)), None
    while True:
        try:
            wanted = next(steps) if given is None else steps.send(given)
        except StopIteration as ended:
            return EndRun("completed", output=ended.value)
        except Stopped as stopped:
            return EndRun(stopped.status, stopped.reason, stopped.output, stopped.message, stopped.stage)
        answered = _answered(wanted, journal, run, now_ms=now_ms)
        if not isinstance(answered, tuple):
            return answered
        given = answered


def play(pattern: Pattern, scene: Scene) -> Steps:
    """The steps of a pattern of any type."""
    match pattern:
        case Pipeline():
            return pipeline(pattern, scene)
        case Iterative():
            return iterative(pattern, scene)
        case Conditional():
            return conditional(pattern, scene, play)
        case ParallelTasks():
            return fan_out(pattern, scene)
        case Debate():
            return debate(pattern, scene)
        case Swarm():
            return swarm(pattern, scene)
        case Coordination():
            return coordination(pattern, scene)
        case _:
            assert_never(pattern)


def _answered(
    wanted: Sequence[Question] | Gate, journal: Mapping[str, RunStage], run: Run, *, now_ms: int
) -> tuple[StageAnswer, ...] | Decision:
    """The answers to what a pattern wants to know, or what is to be done to have them."""
    is_late = run.deadline_ms is not None and now_ms >= run.deadline_ms
    if isinstance(wanted, Gate):
        return _decided(wanted, journal.get(wanted.key), is_late=is_late)
    missing = tuple(each for each in wanted if each.key not in journal)
    if missing:
        return _late() if is_late else BeginStages(missing)
    stages = [journal[each.key] for each in wanted]
    # Of a form that the file demands, the pattern says what becomes of an output that does not have it.
    read = [each.key for each in wanted if each.response_format and journal[each.key].reason == "invalid-output"]
    failed = next((stage for stage in stages if stage.status != "completed" and stage.key not in read), None)
    return _failed(failed) if failed is not None else tuple(StageAnswer(stage.output_text or "") for stage in stages)


def _decided(gate: Gate, stage: RunStage | None, *, is_late: bool) -> tuple[StageAnswer, ...] | Decision:
    if stage is None:
        return _late() if is_late else AskApproval(gate)
    if stage.decision is not None:
        return (StageAnswer(decision=stage.decision, reason=stage.comment or "", is_expired=stage.reason == EXPIRED),)
    return _late() if is_late else AwaitAnswers()


def _late() -> EndRun:
    return EndRun("failed", "deadline", message="The run's deadline has passed.")


def _failed(stage: RunStage) -> EndRun:
    """How a stage that failed ends its run; what was asked beside it is kept for a retry."""
    why = f"Stage {stage.key} ({stage.agent_id}) {_ENDS.get(stage.status, 'failed')}"
    said = (stage.error or {}).get("message")
    message = f"{why}: {said}" if said else f"{why}{f' ({stage.reason})' if stage.reason else ''}."
    return EndRun("failed", stage.reason or "stage", None, message, stage.key, stage.error)


_ENDS = {"incomplete": "gave no whole answer", "cancelled": "was cancelled"}
