"""A thread of each process that renews its leases and sends its heartbeat; and who is alive by their heartbeats."""

import logging
import os
import socket
import threading
import time
from typing import Any

import redis

from loom_worker.core import metrics
from loom_worker.core.redis_client import translate_redis_errors
from loom_worker.core.settings import LaneSettings
from loom_worker.lanes import keys
from loom_worker.lanes.lanes import Lanes, Lease
from loom_worker.lanes.readiness import Idleness, Threads

log = logging.getLogger(__name__)

MEMORY_KEY_MS = 10 * 365 * 86_400_000
"""Lifetime of the key that shows how old Redis' memory is: what is left of it shows that without another clock."""

NONE = Threads()
"""The threads of a process that takes no turns."""


class HeldLease:
    """A lease that is renewed until it is released or lost."""

    def __init__(self, lease: Lease, renewed_s: float) -> None:
        """Args: renewed_s: monotonic time at which it was granted."""
        self.lease = lease
        self.renewed_s = renewed_s
        self.confirmed_s = renewed_s
        """Monotonic time at which the database was last known to say that the lane's turn is ours."""
        self.lost = threading.Event()
        """Set once Redis says that another worker has the lease, or the database that another one owns the turn."""
        self.alerted = threading.Event()
        """Set when the turn's row has changed; a reader of the row clears it first."""
        self.kept: Lease | None = None
        """The lease for the turn that comes next, of this lane or another, if this turn has ended."""
        self.free_as = ""
        """The name under which this thread is a free slot by now; empty: it is none."""

    def is_in_doubt(self, lease_s: float) -> bool:
        """True if its last renewal is older than a lease: another worker may have it, and only the database knows."""
        return time.monotonic() - self.renewed_s > lease_s


class LeaseRenewer:
    """Renews the leases of this process every renew_s and sends its heartbeat.

    A lease whose last renewal is lease_s old by our own monotonic clock is in doubt: this process was stopped, or cut
    off from Redis, or Redis stood still. Its turn then asks the database if it may go on. The lease is renewed if Redis
    still has it, but written again only if the database has confirmed it meanwhile.
    """

    def __init__(
        self, redis: Any, lanes: Lanes, worker: str, settings: LaneSettings, *, threads: Threads | None = None
    ) -> None:
        """Build it; ``start`` starts its thread.

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
        self._renewing = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Send the first heartbeat and start the thread; later calls do nothing.

        What a worker takes that no heartbeat tells of counts as lost: judges would be asked, and paid for, once more.
        """
        if self._thread is None:
            self._idleness.ends()
            self._beat()
            self._thread = threading.Thread(target=self._run, name="loom-lease-renewer", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop the thread; the process no longer counts as alive."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=2)
        try:
            self._redis.zrem(keys.WORKERS, self.worker)
            self._redis.delete(keys.worker(self.worker))
        except redis.RedisError as error:  # the heartbeat then expires by itself
            log.warning("Redis did not answer the lease renewer: %s", error)

    def hold(self, lease: Lease) -> HeldLease:
        """Renew a lease that was just taken from now on."""
        hold = HeldLease(lease, time.monotonic())
        with self._lock:
            self._holds[lease] = hold
        self._idleness.ends()
        return hold

    def let_go(self, hold: HeldLease) -> None:
        """Stop renewing a lease, before it is given back.

        A renewal under way ends first: it would write the lease of a lane that is idle by then once more.
        """
        with self._renewing:
            self._drop(hold)

    def renew(self) -> None:
        """Send a heartbeat and renew all leases once."""
        with self._renewing:
            self._renew_all()

    def _renew_all(self) -> None:
        with self._lock:
            holds = dict(self._holds)
        self._send_heartbeat()
        now_s = time.monotonic()  # a Redis that stood still delayed the line above
        oldest_s = now_s - self._settings.lease_s
        late = {lease for lease, hold in holds.items() if max(hold.renewed_s, hold.confirmed_s) < oldest_s}
        for lease, renewal in self._lanes.renew(holds, late=late).items():
            hold = holds[lease]
            if renewal == "lost":
                self._lose(hold)
            elif renewal != "gone":  # a lease that is gone stays in doubt until its turn has asked the database
                hold.renewed_s = now_s
                if renewal == "alerted":
                    hold.alerted.set()

    def _send_heartbeat(self) -> None:
        now_ms = time.time_ns() // 1_000_000
        with self._redis.pipeline(transaction=False) as pipe:
            pipe.zadd(keys.WORKERS, {self.worker: now_ms})
            pipe.hset(keys.worker(self.worker), mapping={**self._itself, **self._idleness.fields()})
            pipe.pexpire(keys.worker(self.worker), int(self._settings.lease_s * 1000))
            pipe.set(keys.MEMORY_SINCE, "", nx=True, px=MEMORY_KEY_MS)
            self._lanes.pulse(pipe)
            pipe.execute()

    def _lose(self, hold: HeldLease) -> None:
        metrics.LEASES_LOST.count()
        log.warning("lease lost", extra={"lane": hold.lease.lane})
        hold.lost.set()
        self._drop(hold)

    def _drop(self, hold: HeldLease) -> None:
        with self._lock:
            self._holds.pop(hold.lease, None)

    def _run(self) -> None:
        while not self._stop.wait(self._settings.renew_s):
            self._beat()

    def _beat(self) -> None:
        try:
            self.renew()
        except Exception as error:  # the top of a thread: it must outlive every failure of Redis
            log.warning("Redis did not answer the lease renewer: %s", error)


class LiveWorkers:
    """Which workers are alive, by the heartbeats that their lease renewers send."""

    def __init__(self, redis: Any) -> None:
        """Args: redis: a redis-py client."""
        self._redis = redis

    def alive(self) -> frozenset[str]:
        """Names of the living workers, by Redis' clock alone; forgets those that were silent for a day by their own.

        Just after Redis stood still no heartbeat could arrive in time, so all of them count as alive. Unavailable:
        Redis did not answer.
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
    """How long Redis has held our keys, by its own clock; 0 just after it lost them."""
    with translate_redis_errors():
        left_ms = int(redis.pttl(keys.MEMORY_SINCE))
    return max(0, MEMORY_KEY_MS - left_ms) if left_ms >= 0 else 0
