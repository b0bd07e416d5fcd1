"""One tool call of a turn, from the model's request to its result."""

from dataclasses import dataclass, replace
from typing import Literal

from loom_worker.core.values.cutting import entries, fit
from loom_worker.core.values.ids import lasted_ms
from loom_worker.core.values.json import Json, rfc3339

CallStatus = Literal["pending", "running", "completed", "failed", "timeout", "denied", "cancelled", "unknown"]
OPEN_CALL: tuple[CallStatus, ...] = ("pending", "running")
Awaited = Literal["turn", "messages"]
Approval = Literal["waiting", "approved", "edited", "rejected", "expired"]
"""What became of a question to a person; expired: nobody answered in time, and the agent's policy decided."""

CANCELLED = "Cancelled: the turn ended before this call had a result."
"""What the model reads as the result of a call that its turn did not wait for."""

LISTED_CHARS = 2_000
"""Characters of the arguments and the result of each, as many as any Turn has of a result."""


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call of a turn, from the model's request to its result."""

    id: str
    name: str
    arguments: Json
    position: int
    """0, 1, 2… over the whole turn, in the order the model asked."""
    reply_n: int
    """The journal step of the reply that asked for it."""
    status: CallStatus = "pending"
    sends: int = 0
    """How often it was sent to the tool queue; the claim of a sender that was overtaken fails."""
    sent_ms: int | None = None
    worker: str | None = None
    """The process that claimed it."""
    started_ms: int | None = None
    finished_ms: int | None = None
    content: str | None = None
    error_id: str | None = None
    """Id of the whole error, for a call that failed."""
    ref: str | None = None
    """Reference to the whole result, where content is but a preview of it."""
    approval: Approval | None = None
    """What a person has said to it; None: nobody needs to be asked."""
    approve_by_ms: int | None = None
    """A call that waits for a person is decided by the agent's policy from then on."""
    guard: list[Json] | None = None
    """What guardrails decided on its result, as the audit keeps it; None: nothing."""
    trace: Json | None = None
    """From when to when its parts went on: ``process`` (its child process), ``error_read``, ``error_stored``."""
    awaits: Awaited | None = None
    """What gives its result where no tool runs: another agent's turn, or messages of other agents."""
    child_turn_id: str | None = None
    """The turn that it waits for, once that is accepted."""
    wait_until_ms: int | None = None
    """Its result is no longer waited for from then on; None: it is for as long as it takes."""
    media: list[Json] | None = None
    """Images in its result, as ``Media`` has them."""

    @property
    def is_waiting(self) -> bool:
        """True while a person must decide."""
        return self.is_open and self.approval == "waiting"

    @property
    def is_awaiting(self) -> bool:
        """True while another turn or a message is waited for."""
        return self.status == "running" and self.awaits is not None

    @property
    def is_open(self) -> bool:
        """True until there is a result."""
        return self.status in OPEN_CALL

    @property
    def duration_ms(self) -> int | None:
        """Milliseconds from claim to result, None while it runs."""
        return lasted_ms(self.started_ms, self.finished_ms)

    def brief(self) -> "Call":
        """As lists hold it: little of its arguments and its result."""
        content = None if self.content is None else self.content[:LISTED_CHARS]
        return replace(self, arguments=fit(self.arguments, LISTED_CHARS, entries), content=content)

    def as_json(self) -> Json:
        """An entry of a Turn's ``tool_calls``."""
        return {
            "id": self.id,
            "name": self.name,
            "arguments": self.arguments,
            "status": self.status,
            "duration_ms": self.duration_ms,
            "content": None if self.content is None else self.content[:2000],
            "error_id": self.error_id,
            "ref": self.ref,
            "approval": self.approval,
            "approve_by": rfc3339(self.approve_by_ms),
            "child_turn_id": self.child_turn_id,
        }
