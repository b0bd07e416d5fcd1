"""What an unfinished turn waits for."""

from dataclasses import dataclass
from typing import Literal

from loom_worker.core.values.json import Json, rfc3339

WaitsFor = Literal["lane", "model", "rate_limit", "tools", "agents", "judges", "person"]
"""lane: an earlier turn of its session, or a worker · model: a reply, or the next try after an error · rate_limit: the
provider asked to wait · tools: results of tool calls · agents: what other agents answer · judges: verdicts on its
answer · person: a decision on calls."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """What a turn waits for."""

    waits_for: WaitsFor
    since_ms: int
    attempt: int | None = None
    """Requests to the model so far for this reply, or the most sends of a call that is open; None: neither."""
    next_try_ms: int | None = None
    """When the model is asked again; None while nothing is postponed."""
    last_error: str | None = None
    """The model's latest error since its last reply, safe to show."""

    def as_json(self) -> Json:
        """``waiting`` of a Turn."""
        return {
            "for": self.waits_for,
            "since": rfc3339(self.since_ms),
            "attempt": self.attempt,
            "next_try_at": rfc3339(self.next_try_ms),
            "last_error": self.last_error,
        }
