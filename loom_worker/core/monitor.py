"""What a monitor of the whole system, such as Flower, is told of a process' work.

Each run, turn, tool call, judge, summary and delivery is reported under its own id, as it begins, waits and ends. A
report holds ids, names that the installation has chosen, and words of Loom's own: nothing that a user wrote.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

WorkKind = Literal["run", "turn", "tool", "judge", "summary", "webhook"]


@dataclass(frozen=True, slots=True)
class Work:
    """A piece of work, as a monitor lists it."""

    id: str
    kind: WorkKind
    ids: tuple[str, ...]
    """What it concerns: the turn and its session, the run and its workflow, or whatever there is of them."""
    entry: int
    """Higher each time that a process takes it on; what an earlier process reports late does not count."""
    accepted_ms: int | None = None
    """Since when it is asked for; None: nobody knows."""
    started_ms: int | None = None
    """When it was first begun; None: it never was."""
    part_of: str | None = None
    """The id of the work that it is a part of."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Such as that of the tool."""


class Monitor:
    """Takes reports without delay, never fails, may lose one; here nobody listens (``tasks/task_events.py`` sends)."""

    def started(self, work: Work) -> None:
        """A process has begun it, or goes on with it."""

    def waits(self, work: Work, what_for: str, *, run_ms: int) -> None:
        """It occupies nobody until something happens; ``run_ms``: what it has run so far."""

    def succeeded(self, work: Work, what: str, *, run_ms: int) -> None:
        """It has ended well."""

    def failed(self, work: Work, why: str, *, run_ms: int) -> None:
        """It has ended without what was asked for."""

    def cancelled(self, work: Work, why: str, *, run_ms: int) -> None:
        """It was stopped."""


UNMONITORED = Monitor()
