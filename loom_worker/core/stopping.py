"""Whether this process is to stop, and writes that are tried again until they are stored or it does."""

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from loom_worker.core.errors import Unavailable

log = logging.getLogger(__name__)

T = TypeVar("T")

PAUSE_S = 0.5
"""Between two tries; each of them already waits for the database's lock."""


class Stopping:
    """Whether this process is to end; running replies may take until it is due."""

    def __init__(self, drain_s: float) -> None:
        self._drain_s = drain_s
        self._asked = threading.Event()
        self._due_s = float("inf")

    def ask(self) -> None:
        """Stop soon."""
        if not self._asked.is_set():
            self._due_s = time.monotonic() + self._drain_s
            self._asked.set()

    def pause(self, wait_s: float) -> bool:
        """Wait so many seconds, less if asked to stop; True if so."""
        return self._asked.wait(wait_s)

    @property
    def is_asked(self) -> bool:
        """True: begin nothing new."""
        return self._asked.is_set()

    @property
    def is_due(self) -> bool:
        """True: give up what runs."""
        return self._asked.is_set() and time.monotonic() >= self._due_s


def retry_until_stored(write: Callable[[], T], *, stopping: Stopping, lost: threading.Event | None = None) -> T:
    """Write, and again as long as the database is locked or full: a reply or a result is not thrown away for that.

    A write that succeeded although it was reported as failed is found by its fence, or by its call's send number.

    Args:
        stopping: once it is due, the last failure is raised.
        lost: the same once it is set: the turn is another's, who does it anew.

    Raises:
        Unavailable: see above, or the file is damaged: no waiting mends that.
    """
    lost = lost or threading.Event()
    while True:
        try:
            return write()
        except Unavailable as error:
            if stopping.is_due or lost.is_set() or error.slug == "storage-damaged":
                raise
            log.warning("not written yet, trying again: %s", error)
            lost.wait(PAUSE_S)
