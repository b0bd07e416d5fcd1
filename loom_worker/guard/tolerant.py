"""Calls of Redis where work must go on without an answer: a guard must not become the fault itself."""

import logging
import threading
from collections.abc import Callable
from typing import TypeVar

from loom_worker.core.errors import Unavailable
from loom_worker.core.redis_client import translate_redis_errors

log = logging.getLogger(__name__)

T = TypeVar("T")

PAUSE_S = 5.0
"""Redis is not asked for this long after a failure: if it hangs, it costs one caller its timeout, not every caller."""
LOG_S = 60.0
"""At most one line in the log per this many seconds."""


class Tolerant:
    """Asks Redis, and gives a default while it does not answer. Safe to use from many threads."""

    def __init__(self, what: str, clock: Callable[[], float]) -> None:
        """Args: what: the guard, for the log; clock: monotonic seconds."""
        self._what = what
        self._clock = clock
        self._lock = threading.Lock()
        self._ask_at_s = float("-inf")
        self._log_at_s = float("-inf")

    def ask(self, question: Callable[[], T], *, otherwise: T) -> T:
        """Redis' answer to a question, or ``otherwise``."""
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
