"""A thread of each process that adds what the process has counted to the database, and folds what turns have added."""

import logging
import threading
import time
from functools import partial

from loom_worker.core.errors import Unavailable
from loom_worker.core.metric_recorder import RECORDER, Recorder
from loom_worker.store.folding import Folding
from loom_worker.store.metric_values import MetricValues

log = logging.getLogger(__name__)

EVERY_S = 1.0
"""What a killed process has counted for longer than this is not lost."""
FOLDS_EVERY_S = 5.0
"""The five processes of `loom up` that fold do so about once a second together."""
REST_S = 0.002
"""Pause where there is more to fold: the threads that wait to write come first."""


class MetricsFlusher:
    """Adds what was counted once a second, folds every few seconds, and does both when the process ends."""

    def __init__(self, values: MetricValues, folding: Folding, recorder: Recorder = RECORDER) -> None:
        self._values = values
        self._folding = folding
        self._recorder = recorder
        self._flushing = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_away = False

    def start(self) -> None:
        """Start the thread; later calls do nothing."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="loom-metrics", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End the thread, and add what was counted until now."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=2)
        self.flush()

    def flush(self, *, folds: bool = True) -> bool:
        """Add what was counted, and perhaps fold; while the database does not answer it is kept for the next time.

        Returns:
            True if there is more to be folded.
        """
        has_more = False
        with self._flushing:
            cells = self._recorder.take()
            try:
                if folds:
                    has_more = self._folding.fold(partial(self._values.put, cells=cells) if cells else None)
                elif cells:
                    self._values.add(cells)
            except Unavailable as error:
                self._recorder.give_back(cells)
                if not self._is_away:
                    log.warning("what was counted is kept until the database answers: %s", error)
                self._is_away = True
            else:
                self._is_away = False
        return has_more

    def _run(self) -> None:
        folds_at_s = 0.0
        is_behind = has_more = True  # the ledger may have entries of an older Loom, which counted nothing
        while not self._stop.wait(REST_S if is_behind or has_more else EVERY_S):
            try:
                is_behind = is_behind and self._values.add({})
                folds = has_more or time.monotonic() >= folds_at_s
                folds_at_s = time.monotonic() + FOLDS_EVERY_S if folds else folds_at_s
                has_more = self.flush(folds=folds)
            except Unavailable as error:
                is_behind = has_more = False  # the next flush that succeeds goes on with them
                log.warning("what the ledger has is not counted yet: %s", error)
            except Exception:  # the top of a thread: a bug here must not end the counting for good
                is_behind = has_more = False
                log.exception("what was counted could not be added")
