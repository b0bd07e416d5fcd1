"""How what was spent is looked at: by what it is summed, and which of it."""

from dataclasses import dataclass
from typing import Literal

GROUPS = ("turn", "session", "agent", "workspace", "user", "workflow", "run", "model", "kind", "hour", "day", "month")
"""What usage can be summed by; what has no turn, user, workflow or run has the key ''."""
Purpose = Literal["turn", "summary", "rerank", "judge", "guard", "embedding"]
"""What a model was called for; turn: to answer."""


@dataclass(frozen=True, slots=True)
class UsageFilter:
    """Which entries are summed; None lets all pass."""

    turn_id: str | None = None
    session_id: str | None = None
    agent: str | None = None
    model: str | None = None
    kind: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    """The first moment that is too late."""


ALL = UsageFilter()
