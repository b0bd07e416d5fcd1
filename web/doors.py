"""Who may wait, and whether the process is on its way out."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from flask import request


class Doors:
    """Slots for the requests that wait (long polls, event streams), and the sign that tells all of them to go."""

    def __init__(self, *, threads: int) -> None:
        # A quarter of the threads never waits: 200 event readers on 32 threads left the API dead (measured).
        self._slots = threading.BoundedSemaphore(max(1, threads * 3 // 4))
        self._draining = threading.Event()

    @property
    def is_draining(self) -> bool:
        """True once the process was told to stop."""
        return self._draining.is_set()

    def begin_drain(self) -> None:
        """Refuse new work and send the waiters home; cannot be undone."""
        self._draining.set()

    def enter(self) -> bool:
        """Take a slot if one is free; whoever got True calls leave."""
        return self._slots.acquire(blocking=False)

    def leave(self) -> None:
        """Give the slot back."""
        self._slots.release()

    @contextmanager
    def slot(self) -> Iterator[bool]:
        """Hold a slot for a block; False: none was free."""
        has_slot = self.enter()
        try:
            yield has_slot
        finally:
            if has_slot:
                self.leave()

    def leaving(self) -> Callable[[], bool]:
        """A question for the waiter of the current request: must it stop, as we drain or its client has gone?"""
        is_gone: Callable[[], bool] | None = request.environ.get("waitress.client_disconnected")
        if is_gone is None:
            return self._draining.is_set
        gone = is_gone
        return lambda: self._draining.is_set() or gone()
