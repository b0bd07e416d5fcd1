"""The sweep: the one remedy for every lost signal.

It wakes lanes whose lease ran out, whose turn waits for a person who has decided, or that have turns in the database
and nothing in Redis. It sends webhooks, compressions and traces that are due, and removes what deleted sessions left.
A thread in beat and in every worker runs it, one at a time by a lock in Redis. It does not count on Celery's
redelivery.
"""

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import asdict, astuple, dataclass, field
from typing import Any, Protocol

from loom_worker.core import metrics
from loom_worker.core.dispatcher import Dispatcher
from loom_worker.core.settings import LaneSettings
from loom_worker.core.values.ids import now_ms
from loom_worker.events.log import EventLog
from loom_worker.lanes import keys
from loom_worker.lanes.lanes import Lanes
from loom_worker.lanes.lease_renewer import LiveWorkers, memory_age_ms
from loom_worker.store.budgets import Budgets
from loom_worker.store.claims import Claims
from loom_worker.store.memory import Memories
from loom_worker.store.outbox import Outbox
from loom_worker.store.runs import Runs
from loom_worker.store.sessions import Sessions
from loom_worker.trace.flush import NoTraces, TraceSweep

log = logging.getLogger(__name__)

SUBMIT_GRACE_MS = 1_000
"""A turn younger than this is being announced by the process that accepted it."""

MOST = 1_000
"""Lanes and deliveries looked at at a time."""

RUN_AGAIN_MS = 3_000
"""A run that is due and was sent is sent again after this: its step takes milliseconds."""
COMPRESS_GRACE_MS = 5_000
"""A session that is due for no longer was sent by the worker that ended its turn, or is being worked on."""
COMPRESSED = 10
"""Sessions sent per sweep: a worker that takes one goes on to the others that are due."""

FORGOTTEN = 400
"""Turns of deleted sessions whose event logs one sweep removes, at least as many as rows it removes."""
REAPED = 20
"""Batches of rows of deleted sessions that one sweep removes."""

AGAIN_MS = 15_000
"""What is due and no worker has taken is sent again after this. Sent with every sweep, a thousand of them behind a
slow receiver would fill the queue with a thousand messages a second."""


UNACKED = "loom:q:unacked_index"
"""Sorted set of Celery's: messages that a worker took and has not acknowledged, by when it took them in s."""
AHEAD_S = 60
"""Clocks that agree better than this are left alone."""


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep has found."""

    late: int
    """Lanes with a lease that ran out, or an unanswered wake-up."""
    lost: int
    """Lanes of which Redis knew nothing."""
    due: int
    """Deliveries sent."""
    full: int
    """Sessions whose memory is to be compressed."""
    runs: int = 0
    """Runs of workflows that were to go on."""


class Expiry(Protocol):
    """What is kept for a time (``runtime/sweeping.py``: ExpiringStores)."""

    def remove_expired(self, moment_ms: int) -> None:
        """Remove a little of what has expired by then: large results, errors, turns of old sessions."""


class ScheduleWatch(Protocol):
    """What begins at set times (``service/schedules.py``: Schedules)."""

    def fire_due(self, moment_ms: int) -> int:
        """Begin what is due by then; how many runs and turns. Safe in several processes at a time."""


class NoSchedules:
    """Nothing begins by itself: in beat, which loads no workflows, and in tests of other things."""

    def fire_due(self, moment_ms: int) -> int:
        return 0


@dataclass(frozen=True, slots=True)
class Sweep:
    """Sweeps once, if nobody else does just now."""

    redis: Any
    lanes: Lanes
    events: EventLog
    claims: Claims
    outbox: Outbox
    memories: Memories
    sessions: Sessions
    runs: Runs
    budgets: Budgets
    dispatcher: Dispatcher
    expiry: Expiry
    settings: LaneSettings
    traces: TraceSweep | NoTraces = field(default_factory=NoTraces)
    schedules: ScheduleWatch = field(default_factory=NoSchedules)
    most: int = MOST
    clock_ms: Callable[[], int] = field(default=now_ms)

    def once(self, worker: str) -> Swept | None:
        """Wake and send what is due; None if another holds the lock."""
        if not self.redis.set(keys.SWEEP, worker, nx=True, px=int(self.settings.sweep_s * 900)):
            return None
        redis_s, _ = self.redis.time()
        self._date_back(redis_s)
        late = self.lanes.expired(limit=self.most)
        for lane in late:
            self.dispatcher.wake(lane)
        self._reap()
        alive, quiet_ms = LiveWorkers(self.redis).alive(), int(self.settings.lease_s * 1000)
        self.budgets.settle_lost(alive, before_ms=self.clock_ms() - quiet_ms)
        # By the clock that is behind: a worker that is an hour ahead would remove what was stored just now.
        self.expiry.remove_expired(min(self.clock_ms(), redis_s * 1000))
        answered, lost = (self._wake_answered(), self._wake_lost()) if self.claims.has_open_turns() else (0, 0)
        swept = Swept(len(late) + answered, lost, self._send_due(), self._compress_due(), self._advance_due())
        self.traces.once(self.clock_ms())
        return swept

    def fire_due(self) -> int:
        """Begin what schedules say, without the lock: beat may hold that, and begins nothing.

        By the clock that is behind: a worker that is an hour ahead would begin everything an hour early.
        """
        redis_s, _ = self.redis.time()
        return self.schedules.fire_due(min(self.clock_ms(), redis_s * 1000))

    def _date_back(self, now_s: int) -> None:
        """Celery dates what a worker took by that worker's clock: one that is ahead would keep it for so long."""
        ahead = self.redis.zrange(UNACKED, now_s + AHEAD_S, "+inf", byscore=True)
        if ahead:
            self.redis.zadd(UNACKED, dict.fromkeys(ahead, now_s), xx=True)

    def _wake_lost(self) -> int:
        woken, last, accepted_before_ms = 0, "", self.clock_ms() - SUBMIT_GRACE_MS
        while lanes := self.claims.open_lanes(created_before_ms=accepted_before_ms, limit=self.most, after=last):
            woken += self._wake_unleased(lanes)
            last = lanes[-1]
        return woken

    def _wake_answered(self) -> int:
        """Wake turns that wait for a person who has already decided, or for other agents that have answered."""
        ended = self.claims.awaited_lanes(now_ms=self.clock_ms(), limit=self.most)
        found = dict.fromkeys((*self.claims.answered_lanes(limit=self.most), *ended))
        answered = [lane for lane in found if self.lanes.alert(lane)]
        for lane in answered:
            self.dispatcher.wake(lane)
        return len(answered)

    def _wake_unleased(self, lanes: tuple[str, ...]) -> int:
        unleased = self.lanes.unleased(lanes)
        if not unleased:
            return 0
        alive = LiveWorkers(self.redis).alive()
        is_young = memory_age_ms(self.redis) < self.settings.lease_s * 1000
        return sum(self._wake_lane(lane, alive, is_young) for lane in unleased)

    def _wake_lane(self, lane: str, alive: frozenset[str], is_young: bool) -> bool:
        """Wake it, unless a living worker runs the lane and will write its lease again within its next beat."""
        found = self.claims.open_lane(lane)
        if found.held_by is not None and (found.held_by in alive or is_young):
            return False
        if not self.lanes.submit(lane, found.turns):
            return False
        self.dispatcher.wake(lane)
        return True

    def _send_due(self) -> int:
        due = self.outbox.due(now_ms=self.clock_ms() - SUBMIT_GRACE_MS, limit=self.most)
        return self._send(due, self.dispatcher.deliver)

    def _compress_due(self) -> int:
        due = self.memories.due(due_before_ms=self.clock_ms() - COMPRESS_GRACE_MS, limit=COMPRESSED)
        return self._send(due, self.dispatcher.summarize)

    def _advance_due(self) -> int:
        due = self.runs.due(now_ms=self.clock_ms() - SUBMIT_GRACE_MS, limit=self.most)
        return self._send(due, self.dispatcher.advance, again_ms=RUN_AGAIN_MS)

    def _reap(self) -> None:
        """Remove what is left of deleted sessions, some thousand rows with every sweep."""
        if not self.sessions.has_deleted():
            return
        # Redis may have been away when they were deleted.
        self.events.forget(dict.fromkeys(self.sessions.deleted_turns(limit=FORGOTTEN), False))
        self.events.note_removed()
        batches = 0
        while batches < REAPED and self.sessions.purge():
            batches += 1

    def _send(self, due: Iterable[str], send: Callable[[str], None], *, again_ms: int = AGAIN_MS) -> int:
        unsent = [one for one in due if self.redis.set(keys.sent(one), "", nx=True, px=again_ms)]
        for one in unsent:
            send(one)
        return len(unsent)


class Sweeper:
    """The thread that sweeps."""

    def __init__(self, sweep: Sweep, worker: str) -> None:
        self._sweep = sweep
        self._worker = worker
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="loom-sweeper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End after the sweep under way."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=2)

    def _run(self) -> None:
        while not self._stop.wait(self._sweep.settings.sweep_s):
            self._fire_due()
            try:
                swept = self._sweep.once(self._worker)
            except Exception as error:  # the top of a thread: it must outlive every fault of Redis and the database
                log.warning("sweep failed, the next one comes: %s", error)
                continue
            if swept and any(astuple(swept)):
                for found, times in asdict(swept).items():
                    metrics.SWEEP_FINDINGS.count(found, by=times)
                log.info("sweep", extra=asdict(swept))

    def _fire_due(self) -> None:
        try:
            self._sweep.fire_due()
        except Exception as error:  # the top of a thread: a schedule that cannot be looked at must not stop the sweep
            log.warning("schedules failed, the next look comes: %s", error)
