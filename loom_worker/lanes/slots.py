"""The slots of a process: its threads that run lanes, and what a thread does between two lanes.

Celery brings a wake-up to a thread, which costs more than a short turn does. So a thread that has nothing left to run
waits for a moment as a *free slot*, and a lane that is to be woken goes to it directly. After that moment it goes back
to Celery, for at rest nobody should ask Redis for anything, and other tasks need threads, too.
"""

import secrets
import threading
import time

from loom_worker.core.stopping import Stopping
from loom_worker.lanes.lanes import Lanes, Lease

WAIT_S = 1.0
"""How long a thread stays a free slot. A client that asks again within this time has its turn run without Celery."""
SLICE_S = 0.25
"""How often a waiting thread looks if the process is to stop."""


class FreeSlots:
    """Names slots, and counts those that wait. Any thread may use it."""

    def __init__(self, lanes: Lanes, stopping: Stopping, *, process: str, most_waiting: int) -> None:
        """Build it.

        Args:
            process: this process' name, never used before.
            most_waiting: threads that may wait at a time; the others are Celery's again at once.
        """
        self._lanes = lanes
        self._stopping = stopping
        self._process = process
        self._most_waiting = most_waiting
        self._waiting = 0
        self._lock = threading.Lock()

    @property
    def waiting(self) -> int:
        """How many threads are free slots now."""
        return self._waiting

    def new_name(self) -> str:
        """A name for a slot, which is the token of the lease that it may get: never used before."""
        return f"{self._process}-{secrets.token_hex(6)}"

    def offer(self) -> tuple[str, float]:
        """The name under which a thread asks for another lane, and how long it may wait for one (0: not at all).

        The name is empty if it asks for none, for this process is to stop.
        """
        if self._stopping.is_asked:
            return "", 0.0
        return self.new_name(), WAIT_S if self._waiting < self._most_waiting else 0.0

    def assigned(self, slot: str) -> Lease | None:
        """Wait as a free slot, which Redis knows of already; None if no lane came in time.

        Raises:
            Unavailable: Redis did not answer. A lane that it had given to this slot is woken again by the sweep.
        """
        with self._lock:
            self._waiting += 1
        try:
            until_s = time.monotonic() + WAIT_S
            while not self._stopping.is_asked and (left_s := until_s - time.monotonic()) > 0:
                if lease := self._lanes.assigned(slot, wait_s=min(left_s, SLICE_S)):
                    return lease
            return self._lanes.withdraw(slot)
        finally:
            with self._lock:
                self._waiting -= 1

    def next(self) -> Lease | None:
        """The next lane for a thread that has given its own back; None: its time is Celery's again."""
        slot, wait_s = self.offer()
        if not slot:
            return None
        return self._lanes.next(slot, wait_s=wait_s) or (self.assigned(slot) if wait_s else None)
