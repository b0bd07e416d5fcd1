"""What the clients of workflow runs wrote down."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.chaos.run_plan import RunJob, RunVerdict

RunEvent = tuple[int, str, Mapping[str, Any]]
"""Number, type and data."""


@dataclass(frozen=True)
class RunStarted:
    """A run that was answered 202: a new one, or one that goes on for another."""

    run_id: str
    job: RunJob
    key: str
    """Its Idempotency-Key."""
    answers: tuple[str, ...]
    """Run ids of all answers to that key."""
    retry_of: str | None = None


@dataclass(frozen=True)
class RunPolled:
    """A run with a final status, as ``GET /v1/runs/{id}`` gave it."""

    run_id: str
    body: bytes
    is_last: bool
    """Its client had no wish to try again."""


@dataclass(frozen=True)
class RunRead:
    """A run's events, read to the last one."""

    run_id: str
    events: tuple[RunEvent, ...]
    resumed: int
    """How often the stream broke."""
    flaws: tuple[str, ...]


@dataclass(frozen=True)
class RunDecided:
    """A person's decision on a stage's output, with all its attempts."""

    run_id: str
    approval: str
    verdict: RunVerdict
    answers: tuple[int, ...]
    """HTTP statuses in order; 0: there was no answer."""
    opposed: int | None
    """What the opposite was answered, sent after this was settled; None: it was not sent."""


@dataclass(frozen=True)
class RunCancelled:
    """A cancel request that was answered."""

    run_id: str
    at_s: float
    """When the answer was there."""


@dataclass(frozen=True)
class RunWitness:
    """All of it."""

    started: tuple[RunStarted, ...] = ()
    polled: tuple[RunPolled, ...] = ()
    read: tuple[RunRead, ...] = ()
    decided: tuple[RunDecided, ...] = ()
    cancelled: tuple[RunCancelled, ...] = ()
