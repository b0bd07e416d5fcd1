"""What exports traces, put together; where no collector is set, nothing of it does anything."""

from dataclasses import dataclass
from typing import Any

from loom_worker import __version__
from loom_worker.core.settings import Settings, TraceSettings
from loom_worker.core.stopping import Stopping
from loom_worker.store.database import Database
from loom_worker.store.trace_outbox import TraceOutbox
from loom_worker.tasks.dispatch import CeleryDispatcher
from loom_worker.trace.collector import Collector
from loom_worker.trace.export import Exporter, SpanTotals
from loom_worker.trace.flush import Flusher, NoTraces, TraceCall, TraceSweep
from loom_worker.trace.turn_traces import TurnTraces


@dataclass(frozen=True, slots=True)
class TraceParts:
    """What the parts of it share in a process."""

    settings: TraceSettings
    outbox: TraceOutbox
    spans: TurnTraces
    counts: SpanTotals
    call: TraceCall

    @classmethod
    def of(cls, settings: Settings, database: Database, client: Any, dispatcher: CeleryDispatcher) -> "TraceParts":
        """Make them; nothing is connected yet."""
        call = TraceCall(client, dispatcher)
        return cls(settings.trace, TraceOutbox(database), TurnTraces.at(database, settings.trace), SpanTotals(), call)

    def exporter(self, *, process: str, stopping: Stopping) -> Exporter:
        """What the task works with.

        Args:
            process: its name, as the service's instance.
        """
        resource = {"service.name": "loom", "service.version": __version__, "service.instance.id": process}
        collector = Collector(self.settings)
        return Exporter(self.outbox, self.spans, self.counts, collector, self.settings, resource, stopping)

    def flusher(self) -> Flusher | NoTraces:
        """What turns tell of the spans that they add; not yet started."""
        return NoTraces() if self.settings.endpoint is None else Flusher(self.call)

    def sweep(self) -> TraceSweep | NoTraces:
        """What the sweep looks after."""
        if self.settings.endpoint is None:
            return NoTraces()
        return TraceSweep(self.outbox, self.call, self.spans, self.counts)
