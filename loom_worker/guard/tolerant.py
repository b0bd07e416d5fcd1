"""Asking Redis where the work must go on without an answer: a guard must never be the fault itself."""

import logging
import threading
from collections.abc import Callable
from typing import TypeVar

from loom_worker.core.errors import Unavailable
from loom_worker.core.redis_client import translate_redis_errors

log = logging.getLogger(__name__)

T = TypeVar("T")

PAUSE_S = 5.0
"""After a failure Redis is not asked for so long: one that swallows bytes costs a caller its timeout, not each call."""
LOG_S = 60.0
"""One line in the log per so many seconds."""


class Tolerant:
    """Asks, and answers by itself while Redis is away. Safe to use from many threads."""

    def __init__(self, what: str, clock: Callable[[], float]) -> None:
        """Begin with a Redis that is trusted to answer.

        Args:
            what: the guard, for the log.
            clock: monotonic seconds.
        """
        self._what = what
        self._clock = clock
        self._lock = threading.Lock()
        self._ask_at_s = float("-inf")
        self._log_at_s = float("-inf")

    def ask(self, question: Callable[[], T], *, otherwise: T) -> T:
        """What Redis says, or ``otherwise``."""
        if self._clock() < self._ask_at_s:
            return otherwise
        try:
            with translate_redis_errors():
                return question()
        except Unavailable as error:
            self._note(error)
            return otherwise

    def _note(self, error: Unavailable) -> None:
        now_s = self._clock()
        with self._lock:
            self._ask_at_s = now_s + PAUSE_S
            is_due = now_s >= self._log_at_s
            if is_due:
                self._log_at_s = now_s + LOG_S
        if is_due:
            log.warning("%s: going on without it: %s", self._what, error)
