"""One entry of a turn's event log."""

from dataclasses import dataclass
from typing import Literal

from loom_worker.core.values.json import Json

EventType = Literal[
    "turn.queued",
    "turn.started",
    "pattern.matched",
    "skill.used",
    "context.built",
    "output_text.delta",
    "tool_call.started",
    "tool_call.completed",
    "approval.required",
    "memory.compressed",
    "memory.snapshot",
    "turn.retrying",
    "turn.completed",
    "turn.failed",
    "turn.cancelled",
    "turn.incomplete",
    "stream.reset",
]

TERMINAL: frozenset[str] = frozenset({"turn.completed", "turn.failed", "turn.cancelled", "turn.incomplete"})


@dataclass(frozen=True, slots=True)
class Event:
    """An event with its place in the log: ids are 1, 2, 3… without gaps, also across attempts."""

    id: int
    type: str
    data: Json

    @property
    def is_final(self) -> bool:
        """True for the event that ends the log."""
        return self.type in TERMINAL
