"""When to export: so many spans after the last time, so long after the first of them, or at the end.

The message says only that something waits, and one that waits in the queue is enough; so there are never more than a
few of them, whether a collector or the workers of the queue are alive or not.
"""

import logging
import threading
from dataclasses import dataclass
from typing import Any

from loom_worker.core.dispatcher import Dispatcher
from loom_worker.core.errors import LoomError
from loom_worker.core.redis_client import translate_redis_errors
from loom_worker.lanes import keys
from loom_worker.store.trace_outbox import MOST_ROWS, TraceOutbox
from loom_worker.trace.export import count_spans
from loom_worker.trace.turn_spans import TurnTraces

log = logging.getLogger(__name__)

ENOUGH = 100
"""Spans after which the exporter is sent for at once."""
WAIT_S = 10.0
"""How long fewer wait."""
LATE_MS = 15_000
"""The sweep sends for what has waited this long: the process that added it was killed, or its message got lost."""
PAUSE_MS = 1_000
"""Between two messages, whoever sends them."""
STOP_S = 5.0
"""How long the end of a process waits for its last message to be sent."""
TRIMS = 5
"""Transactions in one sweep that drop what is beyond the outbox' bound."""


@dataclass(frozen=True, slots=True)
class TraceCall:
    """Sends for the exporter, unless a message waits already."""

    client: Any
    dispatcher: Dispatcher

    def send(self, *, is_last: bool = False) -> bool:
        """Send; False if somebody else did so a moment ago, perhaps too early for what waits now.

        Args:
            is_last: send all the same: this process cannot come back.

        Raises:
            Unavailable: Redis did not answer.
        """
        with translate_redis_errors():
            if self.client.llen(keys.TRACES):
                return True
            if not self.client.set(keys.TRACES_SENT, "", nx=True, px=PAUSE_MS) and not is_last:
                return False
        self.dispatcher.export_traces()
        return True


class Flusher:
    """Serves a process that ends turns: counts the spans that it adds, and sends for the exporter in time."""

    exports = True

    def __init__(self, call: TraceCall, *, wait_s: float = WAIT_S) -> None:
        self._call = call
        self._wait_s = wait_s
        self._changed = threading.Condition()
        self._added = 0
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name="loom-trace-flusher", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def added(self, spans: int) -> None:
        """Note that so many spans are stored to be exported; returns at once."""
        with self._changed:
            self._added += spans
            if self._added >= ENOUGH or self._added == spans:
                self._changed.notify()

    def stop(self) -> None:
        """Send for what was added, and end."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(timeout=STOP_S)
        elif self._added:
            self._send(is_last=True)

    def _run(self) -> None:
        while not self._is_stopped or self._added:
            with self._changed:
                self._changed.wait_for(lambda: self._added or self._is_stopped)
                self._changed.wait_for(self._is_due, timeout=self._wait_s)
                is_wanted, self._added = self._added > 0, 0
            if is_wanted and not self._send(is_last=self._is_stopped):
                self._again()

    def _again(self) -> None:
        """Wait until a message can be sent again, and let the next round send it at once."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopped, timeout=PAUSE_MS / 1000)
            self._added += ENOUGH

    def _is_due(self) -> bool:
        return self._added >= ENOUGH or self._is_stopped

    def _send(self, *, is_last: bool) -> bool:
        try:
            return self._call.send(is_last=is_last)
        except LoomError as error:
            log.warning("traces wait for the sweep: %s", error)
            return True


@dataclass(frozen=True, slots=True)
class TraceSweep:
    """What the sweep does for traces: it sends for those that nobody has sent for, and keeps their number bounded."""

    outbox: TraceOutbox
    call: TraceCall
    spans: TurnTraces
    most: int = MOST_ROWS

    def once(self, moment_ms: int) -> None:
        """Look once, at a moment in milliseconds since 1970.

        Raises:
            Unavailable: the database or Redis did not answer.
        """
        self._trim()
        if self.outbox.is_late(added_before_ms=moment_ms - LATE_MS, now_ms=moment_ms):
            self.call.send()

    def _trim(self) -> None:
        for _ in range(TRIMS):
            dropped = self.outbox.trim(to=self.most)
            if not dropped:
                return
            made = self.spans.spans([entry.turn_id for entry in dropped if entry.later is None])
            n = sum(map(len, made.values())) + sum(entry.later is not None for entry in dropped)
            log.warning("%d spans are lost: more traces wait than are kept", n)
            count_spans("backlog", n)


class NoTraces:
    """Stands for all of it where traces are not exported."""

    exports = False

    def start(self) -> None:
        """Nothing to begin."""

    def added(self, spans: int) -> None:
        """Nothing is exported."""

    def stop(self) -> None:
        """Nothing to end."""

    def once(self, moment_ms: int) -> None:
        """Nothing to look at."""
