"""Threads of a worker of which a test says how many are at work."""

from collections.abc import Callable
from dataclasses import dataclass

from loom_worker.lanes.readiness import Threads


@dataclass(frozen=True)
class BusyThreads(Threads):
    """So many threads, and what says how many of them are at work."""

    at_work: Callable[[], int] = lambda: 0

    def busy(self) -> int:
        return self.at_work()
