"""A thread that writes what pens have put off: text that comes faster than anyone reads is written together."""

import logging
import threading
import time
from typing import Protocol

log = logging.getLogger(__name__)

TOGETHER_S = 0.02
"""Events within this time of the last writing are put off; a reader sees them so much later at the most. A reply
that comes in one burst then costs three round trips instead of one a piece (24 to 3 for the demo's greeting)."""


class Pen(Protocol):
    """Something that puts off writing."""

    def flush(self) -> None:
        """Write what was put off."""


class Flusher:
    """One for a process; its thread starts with the first pen and sleeps while there is none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pens: set[Pen] = set()
        self._has_pens = threading.Event()
        self._thread: threading.Thread | None = None

    def soon(self, pen: Pen) -> None:
        """Have a pen flushed within TOGETHER_S."""
        with self._lock:
            self._pens.add(pen)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="loom-flusher", daemon=True)
                self._thread.start()
        self._has_pens.set()

    def _run(self) -> None:
        while True:
            self._has_pens.wait()
            time.sleep(TOGETHER_S)
            self._has_pens.clear()
            with self._lock:
                pens, self._pens = self._pens, set()
            for pen in pens:
                self._flush(pen)

    @staticmethod
    def _flush(pen: Pen) -> None:
        try:
            pen.flush()
        except Exception:  # the top of a thread: one pen that cannot write must not silence the others
            log.exception("an event log was not written")
