"""The traces of turns: for whoever asks, and for export."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from loom_worker.core.settings_tree import TraceSettings
from loom_worker.core.values.spans import TraceSpan
from loom_worker.core.values.tenants import Tenant
from loom_worker.store.database import Database
from loom_worker.store.turn_records import TurnRecords
from loom_worker.trace.turn_spans import exported_spans_of, spans_of


@dataclass(frozen=True, slots=True)
class TurnTraces:
    """Makes the spans of turns anew whenever they are asked for."""

    records: TurnRecords
    shows_content: bool = False
    """True: spans hold what users, models and tools wrote."""

    @classmethod
    def at(cls, database: Database, settings: TraceSettings) -> "TurnTraces":
        """Those of a database."""
        return cls(TurnRecords(database), settings.shows_content)

    def of_turn(self, tenant: Tenant, turn_id: str) -> tuple[TraceSpan, ...]:
        """All spans of a tenant's turn, also of one that goes on; see spans_of.

        Raises:
            NotFound: the tenant has no such turn.
        """
        return spans_of(self.records.get(tenant, turn_id), shows_content=self.shows_content)

    def spans(self, turn_ids: Sequence[str]) -> Mapping[str, tuple[TraceSpan, ...]]:
        """What the journals of ended turns tell, by turn; turns that are gone are missing."""
        found = self.records.of(turn_ids)
        return {
            turn_id: exported_spans_of(record, shows_content=self.shows_content) for turn_id, record in found.items()
        }
