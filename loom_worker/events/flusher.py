"""A thread that writes what writers have put off: text that comes faster than anyone reads is written together."""

import logging
import threading
import time
from typing import Protocol

log = logging.getLogger(__name__)

TOGETHER_S = 0.02
"""Events within this time of the last writing are put off; a reader sees them so much later at the most. A reply
that comes in one burst then costs three round trips instead of one a piece (24 to 3 for the demo's greeting)."""


class PendingWriter(Protocol):
    """Something that puts off writing."""

    def flush(self) -> None:
        """Write what was put off."""


class Flusher:
    """One for a process; its thread starts with the first writer and sleeps while there is none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._writers: set[PendingWriter] = set()
        self._has_writers = threading.Event()
        self._thread: threading.Thread | None = None

    def soon(self, writer: PendingWriter) -> None:
        """Have a writer flushed within TOGETHER_S."""
        with self._lock:
            self._writers.add(writer)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="loom-flusher", daemon=True)
                self._thread.start()
        self._has_writers.set()

    def _run(self) -> None:
        while True:
            self._has_writers.wait()
            time.sleep(TOGETHER_S)
            self._has_writers.clear()
            with self._lock:
                writers, self._writers = self._writers, set()
            for writer in writers:
                self._flush(writer)

    @staticmethod
    def _flush(writer: PendingWriter) -> None:
        try:
            writer.flush()
        except Exception:  # the top of a thread: one writer that cannot write must not silence the others
            log.exception("an event log was not written")
