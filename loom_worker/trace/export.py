"""Export: takes what waits in the outbox, makes its spans, and posts them batch by batch.

A batch that the collector takes is done, and so is one that it has refused, or failed to take, four times: that one is
lost and counted. What waits behind it stays in the outbox for the next message. A process that dies meanwhile leaves
its entries there, too, and the same spans, with the same ids, are sent again.

It goes on as fast as it can while half of the machine is idle, else with a part of what is. A lower priority would not
do: a thread that is kept from running holds the interpreter's lock, and may hold the database's, and whoever waits for
these waits with it.
"""

import logging
import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from loom_worker.core import metrics
from loom_worker.core.errors import LoomError
from loom_worker.core.settings_tree import TraceSettings
from loom_worker.core.stopping import Stopping
from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.json import Json
from loom_worker.store.trace_outbox import TraceEntry, TraceOutbox
from loom_worker.trace.collector import Collector, PostResult
from loom_worker.trace.turn_spans import TurnTraces

if TYPE_CHECKING:  # it loads OpenTelemetry's SDK, and most processes export nothing
    from loom_worker.trace.encode import SpanBatch

log = logging.getLogger(__name__)

ENTRIES = 32
"""Taken at a time: with some ten spans a turn, three requests."""
HOLD_MS = 30_000
"""How long others leave them alone if this process dies; one try and the longest pause before it take 25 s."""
RENEW_MS = 5_000
"""What takes longer than this is held for longer."""
PAUSES_S = (1.0, 2.0, 4.0)
"""Before the second, third and fourth try."""
MOST_PAUSE_S = 15.0
"""The longest pause that a collector may ask for."""
AMPLE = 0.5
"""Share of all processors (0-1) that must be idle, or ours, to go on without a pause."""
PART_OF_SPARE = 0.1
"""Share of what is idle where less is: more would be felt, for turns also wait for the disk and for each other."""
LEAST = 0.03
"""Share of one processor that export gets however busy all of them are."""
MOST_REST_S = 2.0
STAT = Path("/proc/stat")
TICKS = os.sysconf("SC_CLK_TCK")


def count_spans(outcome: str, n: int) -> None:
    """Count spans among the metrics of this process.

    Args:
        outcome: exported, or why they are lost: unreachable, unavailable, refused, rejected (by partialSuccess),
            backlog or internal.
    """
    if outcome == "exported":
        metrics.SPANS_EXPORTED.count(by=n)
    else:
        metrics.SPANS_DROPPED.count(outcome, by=n)


class _NotMade(Exception):
    """The spans of some entry, or their encoding, could not be made."""


@dataclass(frozen=True, slots=True)
class Exporter:
    """Empties the outbox; one thread of a process does so at a time."""

    outbox: TraceOutbox
    spans: TurnTraces
    collector: Collector
    settings: TraceSettings
    resource: Json
    """What made the spans: service.name, service.version, service.instance.id."""
    stopping: Stopping
    pauses_s: tuple[float, ...] = PAUSES_S
    _at_work: threading.Lock = field(default_factory=threading.Lock)

    def serve(self) -> None:
        """Export all that waits; return at once if another thread of this process does so already."""
        if self.settings.endpoint is None or not self._at_work.acquire(blocking=False):
            return
        try:
            self.drain()
        except LoomError as error:
            log.warning("traces are not exported, the sweep will ask again: %s", error)
        finally:
            self._at_work.release()

    def drain(self) -> None:
        """Export until nothing waits, a batch is lost, or the process is to stop.

        Raises:
            Unavailable: the database did not answer.
        """
        processors, before = os.cpu_count() or 1, used_so_far()
        while not self.stopping.is_asked:
            entries = self.outbox.take(most=ENTRIES, now_ms=now_ms(), hold_ms=HOLD_MS)
            if not entries or not self._export(entries):
                return
            after = used_so_far()
            if self.stopping.pause(rest_s(before, after, processors=processors)):
                return
            before = after

    def _export(self, entries: Sequence[TraceEntry]) -> bool:
        """Post what was taken; False if a batch was lost or the process is to stop."""
        held = Held(self.outbox, {entry.n for entry in entries}, now_ms())
        try:
            return self._send(entries, held)
        except _NotMade:
            return all(self._send_alone(entry, held) for entry in entries if entry.n in held.ns)
        finally:
            self.outbox.release(sorted(held.ns))

    def _send_alone(self, entry: TraceEntry, held: "Held") -> bool:
        """Post one entry; if it cannot be made it is lost, or it would stand in the way of all others for ever."""
        try:
            return self._send((entry,), held)
        except _NotMade:
            log.exception("a trace is lost", extra={"turn": entry.turn_id})
            count_spans("internal", 1)
            held.remove((entry.n,))
            return True

    def _send(self, entries: Sequence[TraceEntry], held: "Held") -> bool:
        """As _export, if the traces of all of them can be made."""
        for batch, body in self._requests(entries):
            outcome = self._post(batch, body, held)
            if outcome is None:
                return False
            # What is lost in part is lost as a whole: it would stand in the way of all others, again and again.
            torn = [] if outcome.loss is None or batch.partial is None else [batch.partial]
            held.remove([*batch.done, *torn])
            if outcome.loss is not None:
                return False
        return True

    def _requests(self, entries: Sequence[TraceEntry]) -> "Iterator[tuple[SpanBatch, bytes]]":
        """What is to be posted, each batch with its body."""
        from loom_worker.trace.encode import Encoder, batches

        try:
            made = self.spans.spans([entry.turn_id for entry in entries if entry.later is None])
            encoder = Encoder(self.resource, is_json=self.settings.protocol == "json")
            for batch in batches(entries, made, encoder):
                yield batch, encoder.body(batch.spans)
        except LoomError:
            raise
        except Exception as error:
            raise _NotMade from error

    def _post(self, batch: "SpanBatch", body: bytes, held: "Held") -> PostResult | None:
        """Post until it is taken or given up, and count; None: the process is to stop first."""
        if not batch.spans:
            return PostResult()
        held.keep(now_ms())
        outcome = self.collector.post(body, now_s=time.time())
        for pause_s in self.pauses_s:
            if not outcome.may_retry:
                break
            asked_s = min(outcome.retry_after_s or 0.0, MOST_PAUSE_S)
            if self.stopping.pause(max(pause_s, asked_s)):
                return None
            held.keep(now_ms())
            outcome = self.collector.post(body, now_s=time.time())
        self._count(outcome, batch)
        return outcome

    def _count(self, outcome: PostResult, batch: "SpanBatch") -> None:
        n = len(batch.spans)
        if outcome.loss is not None:
            log.warning("%d spans are lost: %s", n + batch.following, outcome.detail)
            count_spans(outcome.loss, n + batch.following)
            return
        rejected = min(outcome.rejected, n)
        if rejected:
            log.warning("the collector rejected %d of %d spans", rejected, n)
            count_spans("rejected", rejected)
        if n > rejected:
            count_spans("exported", n - rejected)


@dataclass(slots=True)
class Held:
    """Entries that this process has taken and is not done with."""

    outbox: TraceOutbox
    ns: set[int]
    since_ms: int
    """When they were taken, or last held again."""

    def keep(self, moment_ms: int) -> None:
        """Hold them again if a while has passed."""
        if moment_ms - self.since_ms >= RENEW_MS:
            self.outbox.hold(sorted(self.ns), until_ms=moment_ms + HOLD_MS)
            self.since_ms = moment_ms

    def remove(self, ns: Sequence[int]) -> None:
        """Be done with some."""
        self.outbox.remove(ns)
        self.ns.difference_update(ns)


@dataclass(frozen=True, slots=True)
class Moment:
    """What was used up to a moment, in seconds."""

    at_s: float
    idle_s: float
    """Time of all processors together, waiting for disks included."""
    own_s: float
    """By this thread."""


def used_so_far() -> Moment | None:
    """Read the clocks; None where the system does not tell, as nowhere but on Linux."""
    try:
        fields = STAT.read_text(encoding="ascii").partition("\n")[0].split()
        return Moment(time.monotonic(), (int(fields[4]) + int(fields[5])) / TICKS, time.thread_time())
    except (OSError, ValueError, IndexError):
        return None


def rest_s(before: Moment | None, after: Moment | None, *, processors: int) -> float:
    """How long to rest after the work between two moments.

    Args:
        processors: of this machine.
    """
    if before is None or after is None or after.at_s <= before.at_s:
        return 0.0
    own_s = after.own_s - before.own_s
    spare = (after.idle_s - before.idle_s + own_s) / ((after.at_s - before.at_s) * processors)
    if spare >= AMPLE:
        return 0.0
    share = max(LEAST, spare * processors * PART_OF_SPARE)
    return min(own_s * (1 / share - 1), MOST_REST_S)
