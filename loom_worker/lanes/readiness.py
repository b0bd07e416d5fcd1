"""Which workers are alive, and whether those that could take a turn do so.

A worker that is cut off from the broker still sends heartbeats, so a heartbeat is no proof of work. No two clocks are
ever compared: a worker measures its idleness by its own monotonic clock, and Redis measures the age of heartbeats and
wake-ups by its own.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from loom_worker.core.redis_client import translate_redis_errors
from loom_worker.lanes import keys

AFTER_S = 15.0
"""A wake-up that nobody has taken for this long was sent four times; so many are not lost by accident."""

SLEPT_S = 5.0
"""A heartbeat comes so late only if the process, or the whole machine, stood still."""

MOST = 100
"""Most workers that are read: those with the latest heartbeats."""


@dataclass(frozen=True, slots=True)
class Threads:
    """The threads of a process that take turns; this one takes none (``tasks/worker.py``: CeleryThreads)."""

    count: int = 0

    def busy(self) -> int:
        """How many are at work now, on turns or on anything else."""
        return 0


class Idleness:
    """How long a process has had a free thread and taken no lane."""

    def __init__(self, threads: Threads, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._threads = threads
        self._clock = clock
        self._since_s = self._asked_s = clock()

    def ends(self) -> None:
        """Start again at 0: a lane was taken, or the process has only begun to listen."""
        self._since_s = self._clock()

    def fields(self) -> dict[str, int]:
        """The fields for a heartbeat; call it with every one.

        A process without a free thread is not idle, and one that was stopped has only begun to listen again.
        """
        now_s, busy = self._clock(), self._threads.busy()
        if busy >= self._threads.count or now_s - self._asked_s > SLEPT_S:
            self._since_s = now_s
        self._asked_s = now_s
        return {"threads": self._threads.count, "busy": busy, "idle_ms": int((now_s - self._since_s) * 1000)}


@dataclass(frozen=True, slots=True)
class WorkerState:
    """A living worker, as it described itself in its last heartbeat."""

    name: str
    host: str
    pids: frozenset[int]
    """Its own and its parent's: the supervisor knows the process it started, which may only watch over the other."""
    threads: int
    """0 for a worker that takes no turns."""
    busy: int
    idle_s: float

    @property
    def is_free(self) -> bool:
        """True if it could take a turn now."""
        return self.busy < self.threads


@dataclass(frozen=True, slots=True)
class Readiness:
    """The living workers and the wake-ups that wait for them, at one moment."""

    workers: tuple[WorkerState, ...]
    unclaimed_s: float
    """Age of the oldest wake-up that the sweep sent and no worker has taken; 0 if there is none."""


def read_readiness(redis: Any) -> Readiness:
    """Read it from Redis, in two round trips; Unavailable: it did not answer."""
    with translate_redis_errors():
        with redis.pipeline(transaction=False) as pipe:
            (seconds, micros), since_ms, names = (
                pipe.time().get(keys.UNCLAIMED).zrange(keys.WORKERS, 0, MOST - 1, desc=True).execute()
            )
        with redis.pipeline(transaction=False) as pipe:
            for name in names:
                pipe.hgetall(keys.worker(name))
            fields = pipe.execute() if names else []
    now_ms = seconds * 1000 + micros // 1000
    unclaimed_s = 0.0 if since_ms is None else max(0.0, (now_ms - int(since_ms)) / 1000)
    alive = tuple(_worker(name, known) for name, known in zip(names, fields, strict=True) if known)
    return Readiness(alive, unclaimed_s)


def _worker(name: str, fields: Mapping[str, str]) -> WorkerState:
    return WorkerState(
        name=name,
        host=fields["host"],
        pids=frozenset({int(fields["pid"]), int(fields["parent"])}),
        threads=int(fields.get("threads", 0)),
        busy=int(fields.get("busy", 0)),
        idle_s=int(fields.get("idle_ms", 0)) / 1000,
    )


def stuck(readiness: Readiness) -> tuple[WorkerState, ...]:
    """Workers that are alive but not consuming: wake-ups wait, and they take none though they have free threads.

    Either all free workers are stuck or none is: if one of them takes turns while a wake-up waits, the fault is
    with the lane. A worker whose threads all wait for a model is healthy.
    """
    free = tuple(worker for worker in readiness.workers if worker.is_free)
    if readiness.unclaimed_s < AFTER_S or any(worker.idle_s < AFTER_S for worker in free):
        return ()
    return free


def problems(readiness: Readiness) -> tuple[str, ...]:
    """Why turns are not taken, for people to read; empty if they are."""
    if not any(worker.threads for worker in readiness.workers):
        return ("workers: none that takes turns is alive",)
    idle = ", ".join(f"{worker.name} for {worker.idle_s:.0f} s" for worker in stuck(readiness))
    if not idle:
        return ()
    waits = f"wake-ups have waited for {readiness.unclaimed_s:.0f} s"
    return (f"workers: alive but not consuming: {waits}; free, but took no turn: {idle}",)
