"""How long a turn is without an owner: from the kill of its worker to its next claim, or its end."""

import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from loom_worker.core.sqlite_driver import sqlite3
from tests.chaos.world import World

LOOK_S = 0.02


@dataclass(frozen=True)
class Orphan:
    """A turn whose owner was killed."""

    turn_id: str
    fence: int
    at_s: float


class Recoveries:
    """Watches orphans until somebody takes them up."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._orphans: list[Orphan] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.seconds: list[float] = []
        """One figure an orphan that was taken up."""

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """No more."""
        self._stop.set()
        self._thread.join(10)

    def watch(self, name: str) -> None:
        """The process is about to be killed."""
        at_s = time.monotonic()
        found = [Orphan(str(turn), int(str(fence)), at_s) for turn, fence in self._world.hold_of(name)]
        with self._lock:
            self._orphans += found

    def _run(self) -> None:
        while not self._stop.wait(LOOK_S):
            with self._lock:
                orphans = list(self._orphans)
            if orphans:
                self._look(orphans)

    def _look(self, orphans: list[Orphan]) -> None:
        query = "SELECT fence, completed_ms IS NOT NULL FROM turns WHERE id = ?"
        with suppress(sqlite3.Error):  # the next look comes
            for orphan in orphans:
                found = self._world.rows(query, orphan.turn_id)
                if any(int(str(fence)) > orphan.fence or has_ended for fence, has_ended in found):
                    self._found(orphan)

    def _found(self, orphan: Orphan) -> None:
        self.seconds.append(time.monotonic() - orphan.at_s)
        with self._lock:
            self._orphans.remove(orphan)


def quantile(seconds: Iterable[float], share: float) -> float | None:
    """Seconds within which that share of the orphans had an owner again; None if there were none."""
    ordered = sorted(seconds)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None
