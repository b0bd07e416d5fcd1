"""What is still to be exported of traces: noted with a turn's end, taken by one exporter at a time, bounded."""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter

from sqlalchemy import Connection, bindparam, delete, func, or_, select, update

from loom_worker.core.values.spans import TraceSpan
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import Lock
from loom_worker.store.tables import spans, trace_outbox
from loom_worker.store.turn_statements import ENQUEUE_TRACE

MOST_ROWS = 100_000
"""Turns that wait for a collector; with its indexes a row takes less than 150 bytes, and the table 15 MB at most."""

AHEAD_MS = 300_000
"""No process holds entries for so long."""
NO_TURN = ""
TRIMMED = 200
"""Entries dropped in one transaction."""

_ENTRY = (trace_outbox.c.n, trace_outbox.c.turn_id, trace_outbox.c.span_n)
_FREE = or_(
    trace_outbox.c.held_until_ms <= bindparam("now_ms"),
    # Held by a process whose clock is ahead; if it dies, nobody would take them for so long.
    trace_outbox.c.held_until_ms > bindparam("now_ms") + AHEAD_MS,
)
_TAKE = (
    update(trace_outbox)
    .where(
        trace_outbox.c.n.in_(select(trace_outbox.c.n).where(_FREE).order_by(trace_outbox.c.n).limit(bindparam("most")))
    )
    .values(held_until_ms=bindparam("until_ms"))
    .returning(*_ENTRY)
)


@dataclass(frozen=True, slots=True)
class TraceEntry:
    """A row of the outbox."""

    n: int
    turn_id: str
    later: TraceSpan | None = None
    """The one span that is to be exported; None: all that the turn's journal tells."""


def enqueue_trace(tx: Connection, turn_id: str, *, span_n: int | None = None, now_ms: int) -> None:
    """Note, in the transaction that ends a turn or stores a later span, that it is to be exported.

    Args:
        span_n: the later span, of table ``spans``; None: all spans that the journal tells.
    """
    ENQUEUE_TRACE.put(tx, {"turn_id": turn_id, "span_n": span_n, "added_ms": now_ms})


class TraceOutbox:
    """The table of traces that wait."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def take(self, *, most: int, now_ms: int, hold_ms: int) -> tuple[TraceEntry, ...]:
        """Take the oldest entries that nobody holds.

        Args:
            hold_ms: if this process dies, another one may take them after this time.
        """
        with self._database.write(lock=Lock.named("traces")) as tx:
            taken = tx.execute(_TAKE, {"most": most, "now_ms": now_ms, "until_ms": now_ms + hold_ms})
            return _entries(tx, [(row.n, row.turn_id, row.span_n) for row in taken])

    def remove(self, ns: Sequence[int]) -> None:
        if ns:
            with self._database.write(lock=Lock.named("traces")) as tx:
                tx.execute(delete(trace_outbox).where(trace_outbox.c.n.in_(ns)))

    def hold(self, ns: Sequence[int], *, until_ms: int) -> None:
        """Keep entries that were taken from others until then."""
        if ns:
            with self._database.write(lock=Lock.named("traces")) as tx:
                tx.execute(update(trace_outbox).where(trace_outbox.c.n.in_(ns)).values(held_until_ms=until_ms))

    def release(self, ns: Sequence[int]) -> None:
        """Give back entries that were taken and not sent."""
        self.hold(ns, until_ms=0)

    def waiting(self) -> int:
        """How many entries there are, those being sent included."""
        with self._database.read() as tx:
            return tx.execute(select(func.count()).select_from(trace_outbox)).scalar_one()

    def is_late(self, *, added_before_ms: int, now_ms: int) -> bool:
        """True if an entry that nobody holds has waited since then or longer, or was added by a clock that is ahead."""
        is_old = or_(trace_outbox.c.added_ms <= added_before_ms, trace_outbox.c.added_ms > now_ms)
        query = select(trace_outbox.c.n).where(_FREE, is_old).order_by(trace_outbox.c.n).limit(1)
        with self._database.read() as tx:
            return tx.execute(query, {"now_ms": now_ms}).first() is not None

    def trim(self, *, to: int = MOST_ROWS, limit: int = TRIMMED) -> tuple[TraceEntry, ...]:
        """Drop the oldest entries beyond ``to``, at most ``limit`` of them; returns what was dropped."""
        span = select(func.max(trace_outbox.c.n) - func.min(trace_outbox.c.n) + 1)
        with self._database.read() as tx:
            # Entries leave about in the order in which they came, so this is nearly their number, and never less.
            if (tx.execute(span).scalar() or 0) <= to:
                return ()
        beyond = self.waiting() - to
        if beyond <= 0:
            return ()
        oldest = select(trace_outbox.c.n).order_by(trace_outbox.c.n).limit(min(beyond, limit))
        with self._database.write(lock=Lock.named("traces")) as tx:
            dropped = tx.execute(delete(trace_outbox).where(trace_outbox.c.n.in_(oldest)).returning(*_ENTRY))
            return _entries(tx, [(row.n, row.turn_id, row.span_n) for row in dropped])


def _entries(tx: Connection, found: Sequence[tuple[int, str, int | None]]) -> tuple[TraceEntry, ...]:
    """Rows as entries, the oldest first, with the later spans that they name."""
    wanted = [span_n for _, _, span_n in found if span_n is not None]
    query = select(spans.c.n, spans.c.turn_id, spans.c.body).where(spans.c.n.in_(wanted))
    later = {(n, turn_id): TraceSpan.of_row(body) for n, turn_id, body in tx.execute(query)} if wanted else {}

    def entry(n: int, turn_id: str, span_n: int | None) -> TraceEntry:
        span = None if span_n is None else later.get((span_n, turn_id))
        # A later span that is gone, perhaps with its turn, is an entry of no turn: nothing is to be sent.
        return TraceEntry(n, turn_id if span_n is None or span else NO_TURN, span)

    return tuple(entry(*row) for row in sorted(found, key=itemgetter(0)))
