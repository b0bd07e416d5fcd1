"""A thread that others give things to do, which watches descriptors meanwhile and is there only while it is needed."""

import logging
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

log = logging.getLogger(__name__)

TICK_S = 0.1
"""How exactly times are kept while the thread is busy."""
LINGER_S = 60.0
"""The thread is kept for so long after it was last needed."""


class ThreadWork(Protocol):
    """What the thread does; all of it is called by the thread, apart from ``is_busy``."""

    def is_busy(self) -> bool:
        """True while the thread is needed; may be called by any thread."""

    def round(self) -> bool:
        """Do what is to be done now; True if there is more of it already."""

    def tick(self, now_s: float) -> None:
        """Called every TICK_S while the thread is busy, with ``time.monotonic``."""

    def rest(self) -> None:
        """The thread ends: give back what it holds."""


class InboxThread:
    """Starts the thread when it is needed, and lets it end when it is not."""

    def __init__(self, name: str, work: ThreadWork) -> None:
        self._name = name
        self._work = work
        self._inbox: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_woken = self._is_dozing = self._is_stopping = False
        self._needed_s = self._next_tick_s = 0.0

    def post(self, action: Callable[[], None]) -> None:
        """Have the thread do something; in vain once it was stopped."""
        self._inbox.append(action)
        self.need(is_urgent=True)

    def need(self, *, is_urgent: bool = False) -> None:
        """The work has become busy.

        Args:
            is_urgent: not at the next tick, but now.
        """
        with self._lock:
            if self._is_stopping:
                return
            if self._thread is None:
                self._start()
            elif (is_urgent or self._is_dozing) and not self._is_woken:
                self._is_woken = True
                self._waker.send(b"x")

    def stop(self) -> None:
        """End the thread, once all that was posted is done and the work is not busy."""
        with self._lock:
            thread, self._is_stopping = self._thread, True
            if thread is not None:
                self._waker.send(b"x")
        if thread is not None:
            thread.join()

    def watch(self, descriptor: int) -> None:
        """Do a round when it can be read; for the thread itself."""
        self._selector.register(descriptor, selectors.EVENT_READ)

    def unwatch(self, descriptor: int) -> None:
        """Watch it no more; it may be closed already."""
        self._selector.unregister(descriptor)

    def _start(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._woken, self._waker = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._needed_s, self._is_woken = time.monotonic(), False
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        has_more = False
        while not self._has_ended():
            had_more, has_more = has_more, False
            try:
                has_more = self._round(has_more=had_more)
            except Exception:  # the top of a thread: a bug that one action meets must not silence the others
                log.exception("%s failed, and goes on", self._name)

    def _round(self, *, has_more: bool) -> bool:
        # Said first: whoever comes between either sees it and wakes us, or is seen.
        self._is_dozing = True
        self._is_dozing = not (self._work.is_busy() or self._inbox)
        for key, _ in self._selector.select(0.0 if has_more else LINGER_S if self._is_dozing else TICK_S):
            if key.fileobj is self._woken:
                self._woken.recv(64)
        with self._lock:
            self._is_woken = False
        while self._inbox:
            self._inbox.popleft()()
        has_more = self._work.round()
        now_s = time.monotonic()
        if now_s >= self._next_tick_s:
            self._next_tick_s = now_s + TICK_S
            self._work.tick(now_s)
        return has_more

    def _has_ended(self) -> bool:
        now_s = time.monotonic()
        with self._lock:
            if self._work.is_busy() or self._inbox:
                self._needed_s = now_s
            elif self._is_stopping or now_s - self._needed_s >= LINGER_S:
                self._work.rest()
                self._thread = None
                for each in (self._selector, self._woken, self._waker):
                    each.close()
                return True
        return False
