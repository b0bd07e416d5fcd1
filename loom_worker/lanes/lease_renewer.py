"""One thread a process renews all its leases and says that it is alive."""

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from loom_worker.core.redis_client import translate_redis_errors
from loom_worker.core.settings import LaneSettings
from loom_worker.lanes import keys
from loom_worker.lanes.lanes import Lanes, Lease
from loom_worker.lanes.readiness import Idleness, Threads

log = logging.getLogger(__name__)

BORN_FOR_MS = 10 * 365 * 86_400_000
"""Lifetime of the key that tells the age of Redis' memory: what is left of it tells the age without another clock."""

NONE = Threads(0, lambda: 0)
"""Of a process that takes no turns."""


class HeldLease:
    """A lease that is being renewed, until it is let go or lost."""

    def __init__(self, lease: Lease, renewed_s: float) -> None:
        """Args: renewed_s: monotonic time at which it was granted."""
        self.lease = lease
        self.renewed_s = renewed_s
        self.confirmed_s = renewed_s
        """Monotonic time at which the database was last known to say that the lane's turn is ours."""
        self.lost = threading.Event()
        """Set once Redis says that another has it, or the database that the turn is another's."""
        self.alerted = threading.Event()
        """Set when the turn's row has changed; whoever takes notice clears it before looking."""
        self.kept: Lease | None = None
        """The lease for the lane's next turn, where this one has ended and the lane stays ours."""

    def is_in_doubt(self, lease_s: float) -> bool:
        """True if its last renewal is older than a lease: another may have it, and only the database knows."""
        return time.monotonic() - self.renewed_s > lease_s


class LeaseRenewer:
    """Renews the leases of this process every renew_s and sends its heartbeat.

    A lease whose last renewal is lease_s old by our own monotonic clock is in doubt: this process was stopped, or cut
    off from Redis, or Redis stood still. Its turn then asks the database whether it goes on. The lease is prolonged if
    Redis still has it, but written anew only if the database has confirmed it meanwhile.
    """

    def __init__(
        self, redis: Any, lanes: Lanes, worker: str, settings: LaneSettings, *, threads: Threads | None = None
    ) -> None:
        """Build it, still.

        Args:
            worker: this process' name, never used before.
            threads: those that take turns; None for a process that takes none.
        """
        self.worker = worker
        self._idleness = Idleness(threads or NONE)
        self._itself = {"host": socket.gethostname(), "pid": os.getpid(), "parent": os.getppid()}
        self._redis = redis
        self._lanes = lanes
        self._settings = settings
        self._holds: dict[Lease, HeldLease] = {}
        self._lock = threading.Lock()
        self._beating = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to beat; later calls do nothing."""
        if self._thread is None:
            self._idleness.ends()
            self._thread = threading.Thread(target=self._run, name="loom-keeper", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop beating; the process is no longer counted as alive."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=2)
        self._guarded(self._take_leave)

    def hold(self, lease: Lease) -> HeldLease:
        """Keep a lease that was just taken."""
        hold = HeldLease(lease, time.monotonic())
        with self._lock:
            self._holds[lease] = hold
        self._idleness.ends()
        return hold

    def let_go(self, hold: HeldLease) -> None:
        """Stop renewing a lease, before it is given back.

        A beat under way ends first: it would write the lease of a lane that is idle by then once more.
        """
        with self._beating:
            self._drop(hold)

    def beat(self) -> None:
        """Renew everything once."""
        with self._beating:
            self._renew_all()

    def _renew_all(self) -> None:
        with self._lock:
            holds = dict(self._holds)
        self._beat_heart()
        now_s = time.monotonic()  # a Redis that stood still held up the line above
        oldest_s = now_s - self._settings.lease_s
        late = {lease for lease, hold in holds.items() if max(hold.renewed_s, hold.confirmed_s) < oldest_s}
        for lease, renewal in self._lanes.renew(holds, late=late).items():
            if renewal == "lost":
                self._lose(holds[lease])
                continue
            if renewal == "gone":  # in doubt until the turn has asked the database
                continue
            holds[lease].renewed_s = now_s
            if renewal == "alerted":
                holds[lease].alerted.set()

    def _beat_heart(self) -> None:
        now_ms = time.time_ns() // 1_000_000
        with self._redis.pipeline(transaction=False) as pipe:
            pipe.zadd(keys.WORKERS, {self.worker: now_ms})
            pipe.hset(keys.worker(self.worker), mapping={**self._itself, **self._idleness.fields()})
            pipe.pexpire(keys.worker(self.worker), int(self._settings.lease_s * 1000))
            pipe.set(keys.BORN, "", nx=True, px=BORN_FOR_MS)
            self._lanes.pulse(pipe)
            pipe.execute()

    def _take_leave(self) -> None:
        self._redis.zrem(keys.WORKERS, self.worker)
        self._redis.delete(keys.worker(self.worker))

    def _lose(self, hold: HeldLease) -> None:
        log.warning("lease lost", extra={"lane": hold.lease.lane})
        hold.lost.set()
        self._drop(hold)

    def _drop(self, hold: HeldLease) -> None:
        with self._lock:
            self._holds.pop(hold.lease, None)

    def _run(self) -> None:
        while not self._stop.wait(self._settings.renew_s):
            self._guarded(self.beat)

    @staticmethod
    def _guarded(action: Callable[[], object]) -> None:
        try:
            action()
        except Exception as error:  # the top of a thread: it must outlive every fault of Redis
            log.warning("Redis did not answer the keeper: %s", error)


class LiveWorkers:
    """Which workers are alive, by the heartbeats that their lease renewers send."""

    def __init__(self, redis: Any) -> None:
        """Args: redis: a redis-py client."""
        self._redis = redis

    def alive(self) -> frozenset[str]:
        """Names of the living workers, by Redis' clock alone; forgets those that were silent for a day by their own.

        Just after Redis stood still no heartbeat could arrive in time, so all of them count as alive.

        Raises:
            Unavailable: Redis did not answer.
        """
        with translate_redis_errors():
            names = self._redis.zrange(keys.WORKERS, 0, -1)
            with self._redis.pipeline(transaction=False) as pipe:
                for name in names:
                    pipe.exists(keys.worker(name))
                pipe.zremrangebyscore(keys.WORKERS, "-inf", time.time_ns() // 1_000_000 - 86_400_000)
                *beating, _, is_grace = pipe.exists(keys.GRACE).execute()
        return frozenset(name for name, is_beating in zip(names, beating, strict=True) if is_beating or is_grace)


def memory_age_ms(redis: Any) -> int:
    """For how long Redis has kept our keys, by its own clock; 0 just after it lost them."""
    with translate_redis_errors():
        left_ms = int(redis.pttl(keys.BORN))
    return max(0, BORN_FOR_MS - left_ms) if left_ms >= 0 else 0
