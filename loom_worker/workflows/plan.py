"""From what a run is to do next to the rows that do it: sessions and inputs of its stages, its end, its webhook."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from loom_worker.agents.known import KnownAgents
from loom_worker.core.errors import BadFile
from loom_worker.core.values.guardrails import NO_GUARDRAILS, Guardrails
from loom_worker.core.values.json import Json
from loom_worker.core.values.notifications import Delivery
from loom_worker.core.values.runs import NewApproval, NewStage, Run, RunChange, RunEnding
from loom_worker.core.values.spans import LaterSpans
from loom_worker.core.values.workspaces import Rules
from loom_worker.guard.rails import check
from loom_worker.trace.later import span_of_run
from loom_worker.webhook.body import WebhookBodies
from loom_worker.workflows.decide import AskApproval, AwaitAnswers, BeginStages, Decision, EndRun, decide
from loom_worker.workflows.spec import pattern_from
from loom_worker.workflows.steps import Gate, Question

NAMES_CHARS = 70
"""Characters of the names of workflow and agent in the id of a stage's session, which has 128 characters at most."""


@dataclass(frozen=True, slots=True)
class Planner:
    """Plans the steps of runs, for ``store/run_steps.py``."""

    agents: KnownAgents
    bodies: WebhookBodies
    is_exported: bool = False
    """True: traces are exported."""

    def change(self, run: Run, rules: Rules, *, now_ms: int) -> RunChange:
        match self._decision(run, now_ms=now_ms):
            case BeginStages(asks):
                return RunChange(begin=tuple(self._stage(ask, n, run, rules, now_ms) for n, ask in enumerate(asks, 1)))
            case AskApproval(gate):
                return RunChange(ask=_approval(gate, now_ms))
            case EndRun() as end:
                return RunChange(end=_ending(end))
            case AwaitAnswers():
                return RunChange()

    def delivery(self, run: Run, turn_id: str, *, now_ms: int) -> Delivery | None:
        if run.webhook is None:
            return None
        return Delivery.of(run, self.bodies.of_run(run), now_ms=now_ms, turn_id=turn_id)

    def spans(self, run: Run, turn_id: str) -> LaterSpans | None:
        span = span_of_run(run)
        return None if span is None else LaterSpans(turn_id, (span,), self.is_exported)

    def _decision(self, run: Run, *, now_ms: int) -> Decision:
        try:
            pattern = pattern_from(run.spec)
        except BadFile as error:  # an earlier version of Loom took it
            return EndRun("failed", "workflow", message=f"The workflow of this run cannot be read any more: {error}")
        return decide(pattern, values_of(run), run, now_ms=now_ms)

    def _stage(self, ask: Question, n: int, run: Run, rules: Rules, now_ms: int) -> NewStage:
        agent = self.agents.find(ask.agent_id)
        own = NO_GUARDRAILS if agent is None else agent.guardrails
        prompt, refs = shortened(ask.prompt, run)
        checked = check("input", prompt, own.with_those_of(Guardrails.of(rules.guardrails)).input)
        held = ", ".join(checked.blocked_for)
        ends = [] if ask.timeout_s is None else [now_ms + int(ask.timeout_s * 1000)]
        return NewStage(
            key=ask.key,
            role=ask.role,
            name=ask.name,
            refs=refs,
            agent_id=ask.agent_id,
            session_id=session_of(ask, run, len(run.stages) + n),
            conversation=ask.conversation_key,
            input=checked.kept,
            deadline_ms=min([*ends, *([] if run.deadline_ms is None else [run.deadline_ms])], default=None),
            guard=checked.decisions,
            response_format=ask.response_format if ask.role == "stage" else {},
            blocked=f"A guardrail refuses the prompt of stage {ask.key}: it holds {held}." if held else "",
        )


def shortened(prompt: str, run: Run) -> tuple[str, frozenset[str]]:
    """A prompt in which long outputs of earlier stages are replaced by their previews, and the references in these."""
    used = set()
    for stage in run.stages:
        if stage.output_ref is not None and stage.output_text and stage.output_text in prompt:
            prompt = prompt.replace(stage.output_text, stage.output_ref["preview"])
            used.add(stage.output_ref["ref"])
    return prompt, frozenset(used)


def values_of(run: Run) -> Mapping[str, str]:
    """What placeholders stand for wherever they are: the run's variables, and what Loom knows of the run."""
    asked = run.variables.get("input", "")
    built_in = {
        "input": asked,
        "run_id": run.id,
        "workflow": run.workflow,
        "date": datetime.fromtimestamp(run.created_ms / 1000, UTC).date().isoformat(),
    }
    return {"initial": asked, **run.variables, **built_in}


def session_of(ask: Question, run: Run, n: int) -> str:
    """The session of a question: that of its conversation, else ``workflow:agent:run.n``, which no client can name.

    Args:
        n: of the stage in the run.
    """
    earlier = (stage.session_id for stage in run.stages if stage.conversation == ask.conversation_key)
    known = next((session_id for session_id in earlier if session_id is not None), None)
    if known is not None:
        return known
    is_own = ask.agent_id.startswith(f"{run.workflow}:")  # an agent that the workflow's file defines
    names = ask.agent_id if is_own else f"{run.workflow}:{ask.agent_id}"
    return f"{names[:NAMES_CHARS]}:{run.id}.{n}"


def _approval(gate: Gate, now_ms: int) -> NewApproval:
    until_ms = now_ms + int(gate.policy.timeout_s * 1000)
    return NewApproval(gate.key, gate.agent_id, gate.prompt, until_ms, gate.policy.on_timeout)


def _ending(end: EndRun) -> RunEnding:
    if end.status == "completed":
        return RunEnding("completed", merged_output=end.output)
    error: Json = {**(end.error or {}), "type": end.reason, "message": end.message}
    if end.stage:
        error["stage"] = end.stage
    return RunEnding(end.status, end.reason, end.output, error, end.stage)
