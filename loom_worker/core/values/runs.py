"""A run of a workflow: its stages, each a turn of an agent or a question to a person, and what came of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from loom_worker.core.values.chat import Usage
from loom_worker.core.values.cutting import FIELD_BYTES, cut_mark, entries, fit, text
from loom_worker.core.values.ids import lasted_ms
from loom_worker.core.values.json import Json, rfc3339
from loom_worker.core.values.schedules import Firing
from loom_worker.core.values.traces import NO_TRACE, TurnTrace
from loom_worker.core.values.turns import TurnStatus
from loom_worker.core.values.webhooks import Webhook

RunStatus = TurnStatus
"""A run has the statuses of a turn."""
StageRole = Literal["stage", "validation", "condition", "merge", "vote", "judge", "approval"]
OPEN_STAGE: tuple[TurnStatus, ...] = ("queued", "in_progress", "requires_action")
RunDecision = Literal["approve", "reject", "revise"]
"""What a person says to a stage's output; revise: the stage is done again, with what the person says."""
EXPIRED = "expired"
"""The reason of an approval that nobody gave in time, so that the file decided."""
LISTED_STAGES = 50
"""Stages of one run in a list."""


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run as a client asks for it, already validated."""

    variables: dict[str, str] = field(default_factory=dict)
    webhook: Webhook | None = None
    budget: Json | None = None
    deadline_s: float | None = None
    metadata: Json = field(default_factory=dict)
    idempotency_key: str | None = None
    fingerprint: str | None = None
    """SHA-256 of the request, to recognize a different request with the same idempotency key."""
    traceparent: str | None = None
    trace: TurnTrace = NO_TRACE
    request_id: str | None = None
    key_id: str | None = None
    user: str | None = None
    """For whom it is; None: nobody in particular."""
    firing: Firing | None = None
    """The due time of a schedule that begins it; None: a client does."""


@dataclass(frozen=True, slots=True)
class RunStage:
    """An entry of a run's journal: a question that was asked, and what came of it."""

    key: str
    """Its place in the pattern: ``stages.0``, ``stages.0.retry.1``, ``rounds.1.agents.2``."""
    role: StageRole
    agent_id: str
    """Who was asked; of an approval, whose output it is about."""
    status: TurnStatus
    name: str | None = None
    """The stage's in the workflow's file; None where it has none."""
    n: int = 0
    """1, 2, 3… in the order in which they began."""
    conversation: str = ""
    """The key of its conversation within the run."""
    session_id: str | None = None
    turn_id: str | None = None
    """None of an approval, and of what a guardrail refused."""
    is_reused: bool = False
    """True: a retry took it over from the run before, where it was paid."""
    prompt: str | None = None
    """Prompt of an approval: what the person is shown. A turn has its own."""
    output_text: str | None = None
    output_ref: Json | None = None
    """Reference to a long output: ``ref`` and ``preview``, which other agents read instead."""
    reason: str | None = None
    error: Json | None = None
    usage: Usage = field(default_factory=Usage)
    decision: RunDecision | None = None
    comment: str | None = None
    """What the person said to it."""
    approve_by_ms: int | None = None
    on_timeout: Literal["reject", "approve"] | None = None
    created_ms: int = 0
    completed_ms: int | None = None

    @property
    def is_open(self) -> bool:
        """True until something has come of it."""
        return self.status in OPEN_STAGE

    def brief(self) -> "RunStage":
        output, error = fit(self.output_text, FIELD_BYTES, text), fit(self.error, FIELD_BYTES, entries)
        return replace(self, output_text=output, error=error, prompt=fit(self.prompt, FIELD_BYTES, text))

    def as_json(self) -> Json:
        shown: Json = {
            "id": self.key,
            "name": self.name,
            "role": self.role,
            "agent_id": self.agent_id,
            "session_id": self.session_id,
            "turn_id": self.turn_id,
            "reused": self.is_reused,
            "status": self.status,
            "reason": self.reason,
            "output_text": self.output_text,
            "output_ref": None if self.output_ref is None else self.output_ref["ref"],
            "error": self.error,
            "usage": self.usage.as_json(),
            "duration_ms": lasted_ms(self.created_ms, self.completed_ms),
            "created_at": rfc3339(self.created_ms),
            "completed_at": rfc3339(self.completed_ms),
        }
        if self.role != "approval":
            return shown
        return {
            **shown,
            "prompt": self.prompt,
            "decision": self.decision,
            "comment": self.comment,
            "approve_by": rfc3339(self.approve_by_ms),
        }


@dataclass(frozen=True, slots=True)
class Run:
    """A run's row, with its stages."""

    id: str
    workspace: str
    workflow: str
    pattern_type: str
    status: RunStatus
    created_ms: int
    spec: Json = field(default_factory=dict)
    """Spec of the workflow as it was when the run was accepted."""
    workflow_version: str | None = None
    variables: dict[str, str] = field(default_factory=dict)
    """Those of the request, and the defaults of the file, by the names that placeholders have."""
    stages: tuple[RunStage, ...] = ()
    user: str | None = None
    key_id: str | None = None
    reason: str | None = None
    cancel: str | None = None
    """``interrupt`` once a client has asked for its end."""
    merged_output: str | None = None
    error: Json | None = None
    failed_stage: str | None = None
    """The key below which a retry does everything again; None: what is completed stays."""
    budget: Json | None = None
    deadline_ms: int | None = None
    webhook: Webhook | None = None
    metadata: Json = field(default_factory=dict)
    traceparent: str | None = None
    trace: TurnTrace = NO_TRACE
    request_id: str | None = None
    retry_of: str | None = None
    events: int = 0
    completed_ms: int | None = None
    is_cut: bool = False

    @property
    def is_finished(self) -> bool:
        return self.completed_ms is not None

    @property
    def trace_id(self) -> str | None:
        """The trace of the run and of all its turns."""
        return self.traceparent.split("-")[1] if self.traceparent else None

    @property
    def usage(self) -> Usage:
        """What its stages have used together; those taken over from an earlier run are counted there."""
        return sum((stage.usage for stage in self.stages if not stage.is_reused), Usage())

    @property
    def duration_ms(self) -> int | None:
        """From its acceptance to its end."""
        return lasted_ms(self.created_ms, self.completed_ms)

    def brief(self) -> "Run":
        stages = tuple(stage.brief() for stage in self.stages[:LISTED_STAGES])
        fields: Json = {
            "merged_output": fit(self.merged_output, FIELD_BYTES, text),
            "variables": fit(self.variables, FIELD_BYTES, entries),
            "metadata": fit(self.metadata, FIELD_BYTES, entries),
            "error": fit(self.error, FIELD_BYTES, entries),
            "stages": stages if stages != self.stages else self.stages,
        }
        is_cut = any(value != getattr(self, name) for name, value in fields.items())
        return replace(self, **fields, is_cut=is_cut)

    def as_json(self) -> Json:
        return {
            "id": self.id,
            "object": "run",
            "workflow": self.workflow,
            "workflow_version": self.workflow_version,
            "pattern_type": self.pattern_type,
            "status": self.status,
            "reason": self.reason,
            "stages": [stage.as_json() for stage in self.stages],
            "agent_results": agent_results(self.stages),
            "merged_output": self.merged_output,
            "usage": self.usage.as_json(),
            "cost": cost(self.stages),
            "duration_ms": self.duration_ms,
            "variables": self.variables,
            "budget": self.budget,
            "metadata": self.metadata,
            "error": self.error,
            "retry_of": self.retry_of,
            "cancel": self.cancel,
            "trace_id": self.trace_id,
            "user": self.user,
            "created_at": rfc3339(self.created_ms),
            "completed_at": rfc3339(self.completed_ms),
            **cut_mark(self.is_cut, f"/v1/runs/{self.id}"),
        }


def agent_results(stages: Sequence[RunStage]) -> list[Json]:
    """What each agent answered, in the order in which they were asked."""
    return [
        {
            "agent_id": stage.agent_id,
            "stage": stage.key,
            "output_text": stage.output_text,
            "cost_usd": 0.0 if stage.is_reused else _usd(stage.usage),
            "duration_ms": lasted_ms(stage.created_ms, stage.completed_ms),
        }
        for stage in stages
        if stage.status == "completed" and stage.role not in ("approval", "validation")
    ]


def cost(stages: Sequence[RunStage]) -> Json:
    """What a run cost, together and by agent; null where a price is not known."""
    paid = [stage for stage in stages if stage.role != "approval" and not stage.is_reused]
    agents = dict.fromkeys(stage.agent_id for stage in paid)
    by_agent = {agent: sum((stage.usage for stage in paid if stage.agent_id == agent), Usage()) for agent in agents}
    total = sum(by_agent.values(), Usage())
    return {"usd": _usd(total), "by_agent": {agent: _usd(used) for agent, used in by_agent.items()}}


def _usd(usage: Usage) -> float | None:
    return None if usage.cost_usd is None else float(usage.cost_usd)


@dataclass(frozen=True, slots=True)
class NewStage:
    """A question to an agent that is to be asked now."""

    key: str
    role: StageRole
    agent_id: str
    session_id: str
    """Id of its conversation, which is made if it is new."""
    conversation: str
    input: str
    deadline_ms: int | None = None
    guard: Sequence[Json] = ()
    """What guardrails decided on the input."""
    blocked: str = ""
    """Why it may not be asked; empty: it may."""
    name: str | None = None
    refs: frozenset[str] = frozenset()
    """Long outputs of earlier stages that it is to read."""
    response_format: Json | None = None  # as of NewTurn


@dataclass(frozen=True, slots=True)
class NewApproval:
    """A question to a person that is to be asked now."""

    key: str
    agent_id: str
    prompt: str
    approve_by_ms: int
    on_timeout: Literal["reject", "approve"]


@dataclass(frozen=True, slots=True)
class RunEnding:
    """How a run ends."""

    status: RunStatus
    reason: str | None = None
    merged_output: str | None = None
    error: Json | None = None
    failed_stage: str | None = None


@dataclass(frozen=True, slots=True)
class RunChange:
    """What is to be done for a run now; nothing of it: it waits."""

    begin: tuple[NewStage, ...] = ()
    ask: NewApproval | None = None
    end: RunEnding | None = None
