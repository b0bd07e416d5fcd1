"""Which workers live, and whether those that could take a turn do so: the age of the last claim against the queue's.

A worker that is cut off from the broker still sends heartbeats, so a heartbeat is no proof of work. No two clocks are
ever compared: a worker measures its idleness by its own monotonic one, Redis its heartbeats and wake-ups by its own.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from loom_worker.core.redis_client import translate_redis_errors
from loom_worker.lanes import keys

AFTER_S = 15.0
"""A wake-up unanswered for this long was rung four times; that many signals are not lost by accident."""

SLEPT_S = 5.0
"""A heartbeat that comes so late did so because the process, or the whole machine, stood still."""

MOST = 100
"""Workers looked at, those whose heartbeat beat last."""


@dataclass(frozen=True, slots=True)
class Threads:
    """Those of a process that take turns."""

    count: int
    busy: Callable[[], int]
    """How many are at work now, be it on turns or on anything else."""


class Idleness:
    """For how long a process has had a free thread and taken no lane."""

    def __init__(self, threads: Threads, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._threads = threads
        self._clock = clock
        self._since_s = self._told_s = clock()

    def ends(self) -> None:
        """A lane was taken, or the process has only begun to listen."""
        self._since_s = self._clock()

    def fields(self) -> dict[str, int]:
        """What the heartbeat tells of it; to be asked with every beat.

        While no thread is free nobody is idle, and a process that was stopped itself has just begun to listen again.
        """
        now_s, busy = self._clock(), self._threads.busy()
        if busy >= self._threads.count or now_s - self._told_s > SLEPT_S:
            self._since_s = now_s
        self._told_s = now_s
        return {"threads": self._threads.count, "busy": busy, "idle_ms": int((now_s - self._since_s) * 1000)}


@dataclass(frozen=True, slots=True)
class Worker:
    """A living worker, as it described itself with its last beat."""

    name: str
    host: str
    pids: frozenset[int]
    """Its own and its parent's: a supervisor knows the one it started, which may only watch over the other."""
    threads: int
    """0 for one that takes no turns."""
    busy: int
    idle_s: float

    @property
    def is_free(self) -> bool:
        """True if it could take a turn now."""
        return self.busy < self.threads


@dataclass(frozen=True, slots=True)
class Look:
    """How things stood at one moment."""

    workers: tuple[Worker, ...]
    unanswered_s: float
    """Age of the oldest wake-up that the sweep rang and nobody answered; 0 if there is none."""


def look(redis: Any) -> Look:
    """Ask Redis, in two round trips.

    Raises:
        Unavailable: it did not answer.
    """
    with translate_redis_errors():
        with redis.pipeline(transaction=False) as pipe:
            (seconds, micros), since_ms, names = (
                pipe.time().get(keys.UNANSWERED).zrange(keys.WORKERS, 0, MOST - 1, desc=True).execute()
            )
        with redis.pipeline(transaction=False) as pipe:
            for name in names:
                pipe.hgetall(keys.worker(name))
            told = pipe.execute() if names else []
    now_ms = seconds * 1000 + micros // 1000
    unanswered_s = 0.0 if since_ms is None else max(0.0, (now_ms - int(since_ms)) / 1000)
    return Look(tuple(_worker(name, of) for name, of in zip(names, told, strict=True) if of), unanswered_s)


def _worker(name: str, told: Mapping[str, str]) -> Worker:
    return Worker(
        name=name,
        host=told["host"],
        pids=frozenset({int(told["pid"]), int(told["parent"])}),
        threads=int(told.get("threads", 0)),
        busy=int(told.get("busy", 0)),
        idle_s=int(told.get("idle_ms", 0)) / 1000,
    )


def stuck(seen: Look) -> tuple[Worker, ...]:
    """Those that are alive but not consuming: wake-ups wait, they have free threads, and take nothing.

    Only all free ones at once: where one of them takes turns and a wake-up still goes unanswered, it is the lane that
    is ill. Those whose threads all wait for a model are healthy.
    """
    free = tuple(worker for worker in seen.workers if worker.is_free)
    if seen.unanswered_s < AFTER_S or any(worker.idle_s < AFTER_S for worker in free):
        return ()
    return free


def problems(seen: Look) -> tuple[str, ...]:
    """Why turns are not taken, for people; empty if they are."""
    if not any(worker.threads for worker in seen.workers):
        return ("workers: none that takes turns is alive",)
    idle = ", ".join(f"{worker.name} for {worker.idle_s:.0f} s" for worker in stuck(seen))
    if not idle:
        return ()
    waits = f"doorbells have gone unanswered for {seen.unanswered_s:.0f} s"
    return (f"workers: alive but not consuming: {waits}; free, but took no turn: {idle}",)
