"""One thread a process renews all its leases and says that it is alive."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from loom_worker.lanes import keys
from loom_worker.lanes.lanes import Lanes, Lease
from loom_worker.redis_client import in_our_words
from loom_worker.settings import LaneSettings

log = logging.getLogger(__name__)


class Hold:
    """A lease that is being renewed, until it is let go or lost."""

    def __init__(self, lease: Lease, renewed_s: float) -> None:
        """Args: renewed_s: monotonic time at which it was granted."""
        self.lease = lease
        self.renewed_s = renewed_s
        self.lost = threading.Event()


class Keeper:
    """Renews the leases of this process every renew_s and beats its heart.

    A lease counts as lost as soon as its last renewal is lease_s old by our own monotonic clock: a process that was
    stopped, or cut off from Redis, gives up by itself and does not ask whether it may go on.
    """

    def __init__(
        self, redis: Any, lanes: Lanes, worker: str, settings: LaneSettings, *, takes_turns: bool = True
    ) -> None:
        """Args: worker: this process' name, never used before."""
        self.worker = worker
        self._beats_on = (keys.WORKERS, keys.TURN_WORKERS) if takes_turns else (keys.WORKERS,)
        self._redis = redis
        self._lanes = lanes
        self._settings = settings
        self._holds: dict[Lease, Hold] = {}
        self._lock = threading.Lock()
        self._beating = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to beat; later calls do nothing."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="loom-keeper", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop beating; the process is no longer counted as alive."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=2)
        self._guarded(self._take_leave)

    def hold(self, lease: Lease) -> Hold:
        """Keep a lease that was just taken."""
        hold = Hold(lease, time.monotonic())
        with self._lock:
            self._holds[lease] = hold
        return hold

    def let_go(self, hold: Hold) -> None:
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
        now_s = time.monotonic()
        for lease, hold in list(holds.items()):
            if now_s - hold.renewed_s > self._settings.lease_s:
                self._lose(holds.pop(lease))
        for key in self._beats_on:
            self._redis.zadd(key, {self.worker: time.time_ns() // 1_000_000})
        self._redis.set(keys.BORN, time.time_ns() // 1_000_000, nx=True)
        for lease, is_renewed in self._lanes.renew(holds).items():
            if is_renewed:
                holds[lease].renewed_s = now_s
            else:
                self._lose(holds[lease])

    def _take_leave(self) -> None:
        for key in self._beats_on:
            self._redis.zrem(key, self.worker)

    def _lose(self, hold: Hold) -> None:
        log.warning("lease lost", extra={"lane": hold.lease.lane})
        hold.lost.set()
        self._drop(hold)

    def _drop(self, hold: Hold) -> None:
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


def alive_workers(redis: Any, *, since_ms: int, among: str = keys.WORKERS) -> frozenset[str]:
    """Workers whose last heartbeat is not older than since_ms; forgets those a day old.

    Args:
        among: WORKERS, or TURN_WORKERS for those that take turns.
    """
    with in_our_words():
        redis.zremrangebyscore(among, "-inf", since_ms - 86_400_000)
        return frozenset(redis.zrange(among, since_ms, "+inf", byscore=True))


def memory_age_ms(redis: Any, *, now_ms: int) -> int:
    """For how long Redis has kept our keys; 0 just after it lost them."""
    with in_our_words():
        born = redis.get(keys.BORN)
    return 0 if born is None else max(0, now_ms - int(born))
