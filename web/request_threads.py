"""The threads that serve requests: two at a time, more only where those two are held up.

With more, each waits for Python's interpreter lock again and again, some twenty times within one transaction. Of
waitress' own threads each serves one request in turn, so one must be woken for every request, and no processor has its
memory at hand. Here a thread that has served a request takes the next one itself, of those that have nothing to do the
last one is woken first, and a thread is only started when all others are busy.
"""

import logging
import threading
import time
from collections import deque
from itertools import takewhile
from typing import Protocol

log = logging.getLogger("loom.web")

AT_ONCE = 2
"""Requests that are served at a time. For 25 clients two make twice as many turns a second as all that come, and more
than one or three (measured)."""
HELD_UP_S = 0.02
"""A request that takes longer waits for something, the database as a rule: another one is served meanwhile."""
START_AGAIN_S = 1.0
"""Where the system gives no thread more, another one is asked for after so long."""


class RequestTask(Protocol):
    """A request that is to be served, or to be gone on with; one of waitress' channels."""

    def service(self) -> None:
        """Serve it; for a thread of its own."""

    def cancel(self) -> None:
        """Nobody will serve it."""


class RequestThreads:
    """What waitress calls a task dispatcher. ``relieve`` must be called when ``due_in_s`` is over."""

    def __init__(self, most: int) -> None:
        """Start nothing yet. Args: most: threads, all in all."""
        self._most = most
        self._lock = threading.Lock()
        self._waiting: deque[RequestTask] = deque()
        self._serving: dict[_Slot, float] = {}
        """Since when each serves its request, in this order."""
        self._idle: list[_Slot] = []
        self._threads: list[threading.Thread] = []
        self._start_again_s = 0.0
        self._is_stopping = False

    @property
    def is_busy(self) -> bool:
        """Whether a request is served, or waits for that."""
        return bool(self._waiting or self._serving)

    def add_task(self, task: RequestTask) -> bool:
        """Have a request served; True if it has to wait, so that ``due_in_s`` may have changed. For any thread."""
        with self._lock:
            if not self._is_stopping:
                self._waiting.append(task)
                self._serve()
            return bool(self._waiting)

    def due_in_s(self) -> float | None:
        """When the next waiting request is to be served if nothing ends before; None if nothing waits."""
        with self._lock:
            if not self._waiting:
                return None
            if len(self._serving) >= self._most:
                return HELD_UP_S
            now_s = time.monotonic()
            working = self._working(now_s)
            due_s = min(working) + HELD_UP_S if len(working) >= AT_ONCE else now_s
            if not self._idle:
                due_s = max(due_s, self._start_again_s)
            return max(0.0, due_s - now_s)

    def relieve(self) -> None:
        """Have others served beside requests that are held up."""
        with self._lock:
            self._serve()

    def shutdown(self, *, timeout_s: float) -> None:
        """End the threads, and serve nothing any more; requests that wait are cancelled.

        Args:
            timeout_s: how long those have that are served.
        """
        with self._lock:
            self._is_stopping = True
            waiting = tuple(self._waiting)
            self._waiting.clear()
            while self._idle:
                self._idle.pop().give(None)
        for task in waiting:
            task.cancel()
        until_s = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, until_s - time.monotonic()))

    def _working(self, now_s: float) -> list[float]:
        """Since when those are served that are not held up, the latest first."""
        return list(takewhile(lambda since_s: now_s < since_s + HELD_UP_S, reversed(self._serving.values())))

    def _is_free(self, now_s: float) -> bool:
        """Whether another request may be served."""
        return len(self._serving) < self._most and len(self._working(now_s)) < AT_ONCE

    def _serve(self) -> None:
        now_s = time.monotonic()
        while self._waiting and self._is_free(now_s):
            slot = self._idle.pop() if self._idle else self._start(now_s)
            if slot is None:
                return
            self._serving[slot] = now_s
            slot.give(self._waiting.popleft())

    def _start(self, now_s: float) -> "_Slot | None":
        """A thread more; None if the system gives none, and then not for a while."""
        if now_s < self._start_again_s:
            return None
        slot = _Slot()
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

    def _run(self, slot: "_Slot") -> None:
        while (task := slot.take()) is not None:
            while task is not None:
                try:
                    task.service()
                except BaseException:  # the top of a thread
                    log.exception("a request failed")
                task = self._next(slot)

    def _next(self, slot: "_Slot") -> RequestTask | None:
        """What a thread that has served one request serves next."""
        with self._lock:
            del self._serving[slot]
            now_s = time.monotonic()
            if self._waiting and self._is_free(now_s):
                self._serving[slot] = now_s
                return self._waiting.popleft()
            if self._is_stopping:
                slot.give(None)
            else:
                self._idle.append(slot)
            return None


class _Slot:
    """A thread, and what it is given to do."""

    def __init__(self) -> None:
        self._has_task = threading.Lock()
        self._has_task.acquire()
        self._task: RequestTask | None = None

    def give(self, task: RequestTask | None) -> None:
        """Wake the thread; None: it ends."""
        self._task = task
        self._has_task.release()

    def take(self) -> RequestTask | None:
        """Wait for something to do."""
        self._has_task.acquire()
        task, self._task = self._task, None
        return task
