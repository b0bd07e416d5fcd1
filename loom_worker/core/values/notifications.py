"""What is sent to readers and webhooks: events of a turn, and deliveries."""

from dataclasses import dataclass, field, replace
from typing import Literal

from loom_worker.core.values.ids import new_id
from loom_worker.core.values.json import Json, rfc3339
from loom_worker.core.values.runs import Run
from loom_worker.core.values.turns import Turn

DeliveryStatus = Literal["pending", "delivered", "dead", "disabled"]


@dataclass(frozen=True, slots=True)
class Delivery:
    """A delivery's row; ``id`` is the ``webhook-id`` header of every attempt."""

    id: str
    workspace: str
    turn_id: str
    url: str
    secret: str | None
    """``whsec_…``; None: the default secret of the process."""
    body: str
    """The JSON text that is signed and sent, byte for byte the same in every attempt."""
    status: DeliveryStatus
    attempts: int
    created_ms: int
    next_ms: int | None = None
    """When the next attempt is due; None when there is none."""
    delivered_ms: int | None = None
    last_status: int | None = None
    """HTTP status of the last attempt; None if there was no answer."""
    last_error: str | None = None
    trace_id: str | None = None
    """Id of the turn's trace, which goes on with the receiver."""
    run_id: str | None = None
    """Id of the run whose end it reports; ``turn_id`` is then the turn with which that came. None: a turn's end."""
    headers: dict[str, str] | None = field(default=None, repr=False)
    """Sent beside those that every delivery has; None: no others."""

    @classmethod
    def of(cls, ended: Turn | Run, body: str, *, now_ms: int, turn_id: str = "") -> "Delivery | None":
        """The delivery that reports the end of a turn or a run, due at once; None if there is no webhook.

        Args:
            body: what will be signed and sent.
            turn_id: the turn with which a run's end came, whose session the delivery goes with.
        """
        if ended.webhook is None:
            return None
        return cls(
            id=new_id("whd_"),
            workspace=ended.workspace,
            turn_id=turn_id or ended.id,
            url=ended.webhook.url,
            secret=ended.webhook.secret,
            body=body,
            status="pending",
            attempts=0,
            created_ms=now_ms,
            trace_id=ended.trace_id,
            headers=dict(ended.webhook.headers) or None,
            next_ms=ended.created_ms,  # long due: by the clock of a worker that is ahead it would be due much later
            run_id=ended.id if isinstance(ended, Run) else None,
        )

    def brief(self) -> "Delivery":
        """As lists hold it: without the body, which none shows."""
        return replace(self, body="")

    def as_json(self) -> Json:
        """The delivery as ``GET /v1/deliveries`` lists it; never the secret."""
        return {
            "id": self.id,
            "object": "delivery",
            "turn_id": self.turn_id,
            "run_id": self.run_id,
            "url": self.url,
            "status": self.status,
            "attempts": self.attempts,
            "last_status": self.last_status,
            "last_error": self.last_error,
            "created_at": rfc3339(self.created_ms),
            "next_attempt_at": rfc3339(self.next_ms),
            "delivered_at": rfc3339(self.delivered_ms),
        }


EventType = Literal[
    "turn.queued",
    "turn.started",
    "pattern.matched",
    "skill.used",
    "context.built",
    "output_text.delta",
    "output_text.commentary",
    "reasoning.delta",
    "model.fallback",
    "tool_call.started",
    "tool_call.completed",
    "approval.required",
    "memory.compressed",
    "memory.snapshot",
    "memory.summarized",
    "judge.verdict",
    "turn.retrying",
    "turn.completed",
    "turn.failed",
    "turn.cancelled",
    "turn.incomplete",
    "run.started",
    "stage.started",
    "stage.completed",
    "stage.failed",
    "stage.cancelled",
    "stage.incomplete",
    "approval.decided",
    "run.completed",
    "run.failed",
    "run.cancelled",
    "run.incomplete",
    "stream.reset",
]

_ENDS = ("completed", "failed", "cancelled", "incomplete")
TERMINAL: frozenset[str] = frozenset(f"{whole}.{end}" for whole in ("turn", "run") for end in _ENDS)


@dataclass(frozen=True, slots=True)
class Event:
    """An event with its place in the log: ids are 1, 2, 3… without gaps, also across attempts."""

    id: int
    type: str
    data: Json
    tries: tuple[Json, ...] = field(default=(), compare=False)
    """Usage that the provider told since the last such event, on a delta; no reader is shown it."""

    @property
    def is_final(self) -> bool:
        """True for the event that ends the log."""
        return self.type in TERMINAL
