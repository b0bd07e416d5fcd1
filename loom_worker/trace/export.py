"""Export: takes what waits in the outbox, makes its spans, and posts them batch by batch.

A batch that the collector takes is done, and so is one that it has refused, or failed to take, four times: that one is
lost and counted. What waits behind it stays in the outbox for the next message. A process that dies meanwhile leaves
its entries there, too, and the same spans, with the same ids, are sent again.
"""

import logging
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from loom_worker.core.errors import LoomError
from loom_worker.core.settings import TraceSettings
from loom_worker.core.stopping import Stopping
from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.json import Json
from loom_worker.core.values.spans import TraceSpan
from loom_worker.store.trace_outbox import TraceEntry, TraceOutbox
from loom_worker.trace import otlp
from loom_worker.trace.batch import Batch, batches
from loom_worker.trace.collector import Collector, Outcome

log = logging.getLogger(__name__)

ENTRIES = 32
"""Taken at a time: with some ten spans a turn, three requests."""
HOLD_MS = 120_000
"""How long others leave them alone; a request and its retries take 47 s at most, unless Retry-After asks for more."""
PAUSES_S = (1.0, 2.0, 4.0)
"""Before the second, third and fourth try."""
MOST_PAUSE_S = 15.0
"""The longest pause that a collector may ask for."""
NICENESS = 10
"""Of the thread that exports: where processor time is short, turns have it first."""


class TurnSpans(Protocol):
    """Makes the spans of turns."""

    def spans(self, turn_ids: Sequence[str]) -> Mapping[str, tuple[TraceSpan, ...]]:
        """All spans of each turn as its journal tells them; nothing for a turn that is gone.

        Raises:
            Unavailable: the database did not answer.
        """
        ...


class SpanCounts(Protocol):
    """Counts what became of spans."""

    def add(self, outcome: str, n: int) -> None:
        """Count ``exported`` spans, or lost ones by the reason.

        Args:
            outcome: exported, unreachable, unavailable, refused, rejected (by partialSuccess) or backlog.
        """
        ...


@dataclass(frozen=True, slots=True)
class Exporter:
    """Empties the outbox; one thread of a process does so at a time."""

    outbox: TraceOutbox
    spans: TurnSpans
    counts: SpanCounts
    collector: Collector
    settings: TraceSettings
    resource: Json
    """What made the spans: service.name, service.version, service.instance.id."""
    stopping: Stopping
    pauses_s: tuple[float, ...] = PAUSES_S
    _at_work: threading.Lock = field(default_factory=threading.Lock)

    def serve(self) -> None:
        """Export all that waits, in a thread of low priority; return at once if another thread does so already."""
        if self.settings.endpoint is None or not self._at_work.acquire(blocking=False):
            return
        try:
            thread = threading.Thread(target=self._run, name="loom-trace-export", daemon=True)
            thread.start()
            thread.join()
        finally:
            self._at_work.release()

    def drain(self) -> None:
        """Export until nothing waits, a batch is lost, or the process is to stop.

        Raises:
            Unavailable: the database did not answer.
        """
        while not self.stopping.is_asked:
            entries = self.outbox.take(most=ENTRIES, now_ms=now_ms(), hold_ms=HOLD_MS)
            if not entries or not self._export(entries):
                return

    def _run(self) -> None:
        _step_back()
        try:
            self.drain()
        except LoomError as error:
            log.warning("traces are not exported, the sweep will ask again: %s", error)
        except Exception:  # the top of a thread: one span that cannot be made must not end what comes after it
            log.exception("traces are not exported")

    def _export(self, entries: Sequence[TraceEntry]) -> bool:
        """Post what was taken; False if a batch was lost or the process is to stop."""
        left = {entry.n for entry in entries}
        try:
            made = self.spans.spans([entry.turn_id for entry in entries if entry.later is None])
            for batch in batches(entries, made):
                outcome = self._post(batch)
                if outcome is None:
                    return False
                # What is lost in part is lost as a whole: it would stand in the way of all others, again and again.
                torn = [] if outcome.loss is None or batch.partial is None else [batch.partial]
                self.outbox.remove([*batch.done, *torn])
                left.difference_update(batch.done, torn)
                if outcome.loss is not None:
                    return False
            return True
        finally:
            self.outbox.release(sorted(left))

    def _post(self, batch: Batch) -> Outcome | None:
        """Post until it is taken or given up, and count; None: the process is to stop first."""
        if not batch.spans:
            return Outcome()
        body = self._body(batch)
        outcome = self.collector.post(body, now_s=time.time())
        for pause_s in self.pauses_s:
            if not outcome.may_retry:
                break
            asked_s = min(outcome.retry_after_s or 0.0, MOST_PAUSE_S)
            if self.stopping.pause(max(pause_s, asked_s)):
                return None
            outcome = self.collector.post(body, now_s=time.time())
        self._count(outcome, batch)
        return outcome

    def _body(self, batch: Batch) -> bytes:
        if self.settings.protocol == "json":
            return otlp.request_body([each.encoded for each in batch.spans], self.resource)
        from loom_worker.trace import otlp_protobuf  # 70 ms, for those alone who need it

        return otlp_protobuf.request_body([each.span for each in batch.spans], self.resource)

    def _count(self, outcome: Outcome, batch: Batch) -> None:
        n = len(batch.spans)
        if outcome.loss is not None:
            log.warning("%d spans are lost: %s", n + batch.following, outcome.detail)
            self.counts.add(outcome.loss, n + batch.following)
            return
        rejected = min(outcome.rejected, n)
        if rejected:
            log.warning("the collector rejected %d of %d spans", rejected, n)
            self.counts.add("rejected", rejected)
        if n > rejected:
            self.counts.add("exported", n - rejected)


def _step_back() -> None:
    """Lower this thread's priority; nowhere but on Linux does a thread have one of its own."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
