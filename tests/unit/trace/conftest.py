"""An outbox in a real database, with turns whose spans are known."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from loom_worker.core import metrics
from loom_worker.core.settings_tree import TraceSettings
from loom_worker.core.stopping import Stopping
from loom_worker.core.values.spans import TraceSpan
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.trace_outbox import TraceOutbox, enqueue_trace
from loom_worker.trace.collector import Collector
from loom_worker.trace.export import Exporter
from tests.support.counting import Counted
from tests.support.webhook_receiver import WebhookReceiver
from tests.unit.store import made as rows
from tests.unit.trace.made_spans import span


@dataclass
class MadeSpans:
    """The spans of turns, as they were given."""

    by_turn: dict[str, tuple[TraceSpan, ...]] = field(default_factory=dict)

    def spans(self, turn_ids: Sequence[str]) -> dict[str, tuple[TraceSpan, ...]]:
        return {turn_id: self.by_turn[turn_id] for turn_id in turn_ids if turn_id in self.by_turn}


@dataclass
class Bench:
    """An exporter with all it works with."""

    database: Database
    outbox: TraceOutbox
    spans: MadeSpans
    counted: Counted
    stopping: Stopping
    receiver: WebhookReceiver

    def ended(self, *, spans: int = 3, first: int = 0, added_ms: int = rows.NOW_MS) -> str:
        """A turn with so many spans that waits to be exported."""
        turn = rows.submitted(self.database)
        self.spans.by_turn[turn.id] = tuple(span(first + n, name=f"{turn.id} {n}") for n in range(spans))
        with self.database.write(lock=WHOLE) as tx:
            enqueue_trace(tx, turn.id, now_ms=added_ms)
        return turn.id

    def totals(self) -> dict[str, float]:
        """Spans by what became of them."""
        found = self.counted(metrics.SPANS_DROPPED) | self.counted(metrics.SPANS_EXPORTED)
        return {"".join(reason) or "exported": n for reason, n in found.items()}

    def exporter(self, *, timeout_s: float = 10.0, pauses_s: tuple[float, ...] = (0, 0, 0), **fields: Any) -> Exporter:
        settings = TraceSettings(**{"endpoint": f"http://127.0.0.1:{self.receiver.port}", **fields})
        collector = Collector(settings, timeout_s=timeout_s)
        resource = {"service.name": "loom"}
        rest = (collector, settings, resource, self.stopping)
        return Exporter(self.outbox, self.spans, *rest, pauses_s=pauses_s)


@pytest.fixture
def bench(database: Database, counted: Counted) -> Iterator[Bench]:
    with WebhookReceiver() as receiver:
        yield Bench(database, TraceOutbox(database), MadeSpans(), counted, Stopping(1.0), receiver)
