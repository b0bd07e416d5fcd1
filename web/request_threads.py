"""The threads that serve requests: two at a time, more only where those two are held up.

With more, each waits for Python's interpreter lock again and again, some twenty times within one transaction. A thread
that has served a request takes the next one itself, of those that have nothing to do the last one is woken first, and a
thread is only started when all others are busy.
"""

import heapq
import itertools
import logging
import queue
import threading
import time
from asyncio import AbstractEventLoop, TimerHandle
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
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
ENDS_BEHIND_S = 0.1
"""So much later than a request that has just come in another one goes on that has waited anyway: without that a burst's
submits wait behind the ends of the turns before them, which doubles what a submit takes (measured)."""
START_AGAIN_S = 1.0
"""Where the system gives no thread more, another one is asked for after so long."""


class RequestThreads:
    """Runs what may block in threads, ``most`` of them, and has their results taken by the loop's thread."""

    loop: AbstractEventLoop
    """To be set before anything is run."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._waiting: list[tuple[float, int, Work]] = []  # a heap: who should be served first
        self._count = itertools.count()
        self._serving: dict[_Slot, float] = {}  # since when each serves its request, in this order
        self._idle: list[_Slot] = []
        self._threads: list[threading.Thread] = []
        self._relief: TimerHandle | None = None
        self._results: deque[Work] = deque()
        self._start_again_s = 0.0
        self._is_woken = self._is_stopping = False

    def run(self, work: Work, *, behind_s: float = 0.0) -> None:
        """Have something done; for the loop's thread.

        Args:
            behind_s: what comes within so long is done before it.
        """
        with self._lock:
            heapq.heappush(self._waiting, (time.monotonic() + behind_s, next(self._count), work))
            self._serve_waiting()

    def hand_over(self, result: Work) -> None:
        """Have the loop's thread call something; for any thread. Results that come together wake it once."""
        self._results.append(result)
        if not self._is_woken:
            self._is_woken = True
            with suppress(RuntimeError):  # the loop has ended
                # In no request's context, or what it begins would carry the ids of the one that woke it.
                self.loop.call_soon_threadsafe(self._take_results, context=Context())

    def shutdown(self, *, timeout_s: float) -> None:
        """Serve nothing any more, and end the threads; those that serve have so long."""
        with self._lock:
            self._is_stopping = True
            self._waiting.clear()
            for slot in self._idle:
                slot.put(None)
        until_s = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, until_s - time.monotonic()))

    def _take_results(self) -> None:
        self._is_woken = False  # first: what is added from here on wakes the loop again
        while self._results:
            try:
                self._results.popleft()()
            except Exception:  # the top of a callback: the others' are taken all the same
                log.exception("a result was not taken")

    def _relieve(self) -> None:
        with self._lock:
            self._relief = None
            self._serve_waiting()

    def _serve_waiting(self) -> None:
        """Serve what can be served, also beside requests that are held up, and look again when more can be.

        The caller holds the lock.
        """
        now_s = time.monotonic()
        while self._waiting and self._is_free(now_s) and (self._idle or self._start(now_s)):
            self._give(self._idle.pop(), now_s)
        if self._waiting and self._relief is None:
            due_s = min([HELD_UP_S, *(since_s + HELD_UP_S - now_s for since_s in self._working(now_s))])
            self._relief = self.loop.call_later(due_s, self._relieve)

    def _working(self, now_s: float) -> list[float]:
        """Since when those are served that are not held up."""
        return list(takewhile(lambda since_s: now_s < since_s + HELD_UP_S, reversed(self._serving.values())))

    def _is_free(self, now_s: float) -> bool:
        return not self._is_stopping and len(self._serving) < self._most and len(self._working(now_s)) < AT_ONCE

    def _give(self, slot: _Slot, now_s: float) -> None:
        self._serving[slot] = now_s
        slot.put(heapq.heappop(self._waiting)[-1])

    def _start(self, now_s: float) -> bool:
        """Start a thread more; False if the system gives none, and then for a while."""
        if now_s < self._start_again_s:
            return False
        slot: _Slot = queue.SimpleQueue()
        thread = threading.Thread(target=self._serve, args=(slot,), name="loom-request", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            self._start_again_s = now_s + START_AGAIN_S
            log.warning("a request waits for another one to end: no thread more than %d: %s", len(self._threads), error)
            return False
        self._threads.append(thread)
        self._idle.append(slot)
        return True

    def _serve(self, slot: _Slot) -> None:
        while (work := slot.get()) is not None:
            try:
                work()
            except BaseException:  # the top of a thread
                log.exception("a request failed")
            with self._lock:
                del self._serving[slot]
                now_s = time.monotonic()
                has_next = bool(self._waiting) and self._is_free(now_s)
                if has_next:
                    self._give(slot, now_s)
                else:
                    self._idle.append(slot)
                is_over = self._is_stopping and not has_next
            if is_over:
                return
