"""Turns that other turns wait for: an agent asks another one, whose turn is the child of its own."""

from dataclasses import dataclass
from typing import Literal, Self

from loom_worker.core.values.json import Json

MOST_DEPTH = 3
"""Turns that may wait for one, each for the next."""


@dataclass(frozen=True, slots=True)
class Ancestor:
    """A turn that waits for another one, directly or not."""

    turn_id: str
    lane: str
    agent: str

    def as_row(self) -> Json:
        """As the child's row has it."""
        return {"turn_id": self.turn_id, "lane": self.lane, "agent": self.agent}

    @classmethod
    def of_rows(cls, rows: list[Json] | None) -> tuple[Self, ...]:
        """Read what ``as_row`` wrote."""
        return tuple(cls(**row) for row in rows or ())


@dataclass(frozen=True, slots=True)
class AncestorBudget:
    """What a turn that waits may spend, with its children."""

    turn_id: str
    lane: str
    turn: Json | None = None
    session: Json | None = None


@dataclass(frozen=True, slots=True)
class NewChild:
    """A turn of another agent that a call of this turn asks for."""

    position: int
    agent: str
    session_id: str
    """Its conversation, which is made if it is new."""
    input: str
    guard: tuple[Json, ...] = ()
    """What guardrails decided on the input, as the audit keeps it."""
    refs: frozenset[str] = frozenset()
    """Large results that the input names: those that its asker can read are passed on."""
    traceparent: str | None = None
    wait_until_ms: int | None = None
    """It is no longer waited for from then on."""
    deadline_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ChildEnd:
    """How a child has ended."""

    turn_id: str
    status: Literal["completed", "failed", "cancelled", "incomplete"]
    reason: str | None = None
    output_text: str | None = None
    error: Json | None = None
    output_ref: Json | None = None
    """Reference to a long answer, as OutputRef writes it."""


@dataclass(frozen=True, slots=True)
class OutputRef:
    """A long answer of one agent as another one reads it: stored apart, with a preview that names the reference."""

    ref: str
    preview: str

    def as_row(self) -> Json:
        """As the row of its turn has it."""
        return {"ref": self.ref, "preview": self.preview}


def why_not(agent: str, caller: str, ancestors: tuple[Ancestor, ...]) -> str | None:
    """Why an agent may not be asked from within a turn; None: it may.

    Args:
        caller: the agent of the turn that asks.
        ancestors: the turns that wait for that one.
    """
    chain = [*(ancestor.agent for ancestor in ancestors), caller]
    if agent in chain:
        path = " -> ".join([*chain, agent])
        return f"Not asked: {agent!r} waits for this answer already ({path}). Answer from what you have."
    if len(chain) > MOST_DEPTH:
        return f"Not asked: {len(chain)} agents wait for each other already ({' -> '.join(chain)}), the most that may."
    return None
