"""An outbox in a real database, with turns whose spans are known."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from loom_worker.core.settings import TraceSettings
from loom_worker.core.stopping import Stopping
from loom_worker.core.values.spans import TraceSpan
from loom_worker.store.database import Database
from loom_worker.store.trace_outbox import TraceOutbox, enqueue_trace
from loom_worker.trace.collector import Collector
from loom_worker.trace.export import Exporter
from tests.support.webhook_receiver import WebhookReceiver
from tests.unit.store import made as rows
from tests.unit.trace.made_spans import span


@dataclass
class MadeSpans:
    """The spans of turns, as they were given."""

    by_turn: dict[str, tuple[TraceSpan, ...]] = field(default_factory=dict)

    def spans(self, turn_ids: Sequence[str]) -> dict[str, tuple[TraceSpan, ...]]:
        return {turn_id: self.by_turn[turn_id] for turn_id in turn_ids if turn_id in self.by_turn}


class Totals:
    """Spans by what became of them."""

    def __init__(self) -> None:
        self._totals: Counter[str] = Counter()

    def add(self, outcome: str, n: int) -> None:
        self._totals[outcome] += n

    def totals(self) -> dict[str, int]:
        return dict(self._totals)


@dataclass
class Bench:
    """An exporter with all it works with."""

    database: Database
    outbox: TraceOutbox
    spans: MadeSpans
    totals: Totals
    stopping: Stopping
    receiver: WebhookReceiver

    def ended(self, *, spans: int = 3, first: int = 0, added_ms: int = rows.NOW_MS) -> str:
        """A turn with so many spans that waits to be exported."""
        turn = rows.submitted(self.database)
        self.spans.by_turn[turn.id] = tuple(span(first + n, name=f"{turn.id} {n}") for n in range(spans))
        with self.database.write() as tx:
            enqueue_trace(tx, turn.id, now_ms=added_ms)
        return turn.id

    def exporter(self, *, timeout_s: float = 10.0, pauses_s: tuple[float, ...] = (0, 0, 0), **fields: Any) -> Exporter:
        settings = TraceSettings(**{"endpoint": f"http://127.0.0.1:{self.receiver.port}", **fields})
        collector = Collector(settings, timeout_s=timeout_s)
        resource = {"service.name": "loom"}
        rest = (self.totals, collector, settings, resource, self.stopping)
        return Exporter(self.outbox, self.spans, *rest, pauses_s=pauses_s)


@pytest.fixture
def bench(database: Database) -> Iterator[Bench]:
    with WebhookReceiver() as receiver:
        yield Bench(database, TraceOutbox(database), MadeSpans(), Totals(), Stopping(1.0), receiver)
