"""The threads that serve requests: two at a time, more only where those two are held up.

With more, each waits for Python's interpreter lock again and again, some twenty times within one transaction. A thread
that has served a request takes the next one itself, of those that have nothing to do the last one is woken first, and a
thread is only started when all others are busy.
"""

import logging
import queue
import threading
import time
from asyncio import AbstractEventLoop, TimerHandle
from collections import deque
from collections.abc import Callable
from itertools import takewhile

log = logging.getLogger("loom.web")

Work = Callable[[], object]
_Slot = queue.SimpleQueue[Work | None]
"""A thread, by the queue on which it is given its work; None: it ends."""

AT_ONCE = 2
"""Requests that are served at a time. For 25 clients two make twice as many turns a second as all that come, and more
than one or three (measured)."""
HELD_UP_S = 0.02
"""A request that takes longer waits for something, the database as a rule: another one is served meanwhile."""
START_AGAIN_S = 1.0
"""Where the system gives no thread more, another one is asked for after so long."""


class RequestThreads:
    """Runs what may block; ``run`` is for the loop's thread.

    Args:
        most: threads, all in all.
        loop: its clock tells when others are held up.
    """

    def __init__(self, most: int, loop: AbstractEventLoop) -> None:
        self._most, self._loop = most, loop
        self._lock = threading.Lock()
        self._waiting: deque[Work] = deque()
        self._serving: dict[_Slot, float] = {}
        """Since when each serves its request, in this order."""
        self._idle: list[_Slot] = []
        self._threads: list[threading.Thread] = []
        self._start_again_s = 0.0
        self._relief: TimerHandle | None = None
        self._is_stopping = False

    @property
    def is_busy(self) -> bool:
        """Whether a request is served, or waits for that."""
        return bool(self._waiting or self._serving)

    def run(self, work: Work) -> None:
        """Have something done."""
        self._waiting.append(work)
        self._serve_waiting()

    def shutdown(self, *, timeout_s: float) -> None:
        """End the threads, and serve nothing any more.

        Args:
            timeout_s: how long those have that are served.
        """
        with self._lock:
            self._is_stopping = True
            self._waiting.clear()
            while self._idle:
                self._idle.pop().put(None)
        until_s = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, until_s - time.monotonic()))

    def _relieve(self) -> None:
        self._relief = None
        self._serve_waiting()

    def _serve_waiting(self) -> None:
        """Serve what can be served, also beside requests that are held up, and look again when more can be."""
        with self._lock:
            now_s = time.monotonic()
            while self._waiting and self._is_free(now_s) and not self._is_stopping:
                slot = self._idle.pop() if self._idle else self._start(now_s)
                if slot is None:
                    break
                self._serving[slot] = now_s
                slot.put(self._waiting.popleft())
            if self._waiting and self._relief is None:
                working = self._working(now_s)
                due_s = working[-1] + HELD_UP_S - now_s if working else HELD_UP_S
                self._relief = self._loop.call_later(due_s, self._relieve)

    def _working(self, now_s: float) -> list[float]:
        """Since when those are served that are not held up, the latest first."""
        return list(takewhile(lambda since_s: now_s < since_s + HELD_UP_S, reversed(self._serving.values())))

    def _is_free(self, now_s: float) -> bool:
        return len(self._serving) < self._most and len(self._working(now_s)) < AT_ONCE

    def _start(self, now_s: float) -> _Slot | None:
        """A thread more; None if the system gives none, and then not for a while."""
        if now_s < self._start_again_s:
            return None
        slot: _Slot = queue.SimpleQueue()
        name = f"loom-request-{len(self._threads)}"
        thread = threading.Thread(target=self._run, args=(slot,), name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            self._start_again_s = now_s + START_AGAIN_S
            log.warning("a request waits for another one to end: no thread more than %d: %s", len(self._threads), error)
            return None
        self._threads.append(thread)
        return slot

    def _run(self, slot: _Slot) -> None:
        while (work := slot.get()) is not None:
            try:
                work()
            except BaseException:  # the top of a thread
                log.exception("a request failed")
            with self._lock:
                del self._serving[slot]
                now_s = time.monotonic()
                if self._is_stopping:
                    return
                if self._waiting and self._is_free(now_s):
                    self._serving[slot] = now_s
                    slot.put(self._waiting.popleft())
                else:
                    self._idle.append(slot)
