"""What is stored of a turn and its trace tells of; and the spans that are stored as such, for no journal tells them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, insert, select

from loom_worker.core.values.judges import Verdict
from loom_worker.core.values.spans import LaterSpans, TraceSpan, span_id_of
from loom_worker.core.values.tenants import Tenant
from loom_worker.core.values.traces import TracedTurn, TurnTrace
from loom_worker.core.values.turns import Step, Turn
from loom_worker.store import rows
from loom_worker.store.claims import read_verdicts
from loom_worker.store.database import Database
from loom_worker.store.schema import turn_columns, turns
from loom_worker.store.tables import spans
from loom_worker.store.trace_outbox import enqueue_trace
from loom_worker.store.turn_statements import STEPS
from loom_worker.store.turns import read_calls, turn_row

LATER_SPANS = 200
"""Spans of one turn, the latest: a delivery that is replayed again and again must not fill the database."""

_TURN = select(*turn_columns()).where(turns.c.id == bindparam("our_id"))
_LATER = (
    select(spans.c.body).where(spans.c.turn_id == bindparam("our_id")).order_by(spans.c.n.desc()).limit(LATER_SPANS)
)
_ADD = insert(spans).returning(spans.c.n)
_LAST_ENDED = (
    select(turns.c.id, turns.c.traceparent)
    .where(turns.c.lane == bindparam("our_lane"), turns.c.completed_ms <= bindparam("until_ms"))
    .order_by(turns.c.seq.desc())
    .limit(1)
)
_TRACE = select(turns.c.trace).where(turns.c.id == bindparam("our_id"))


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """All that is stored of a turn and that its trace tells of."""

    turn: Turn
    trace_id: str
    """Id of its ``traceparent``; one that follows from its id, where it has none."""
    parent_id: str | None
    """The 16 digits of its ``traceparent`` that name a span; None: it has none."""
    claimed_us: int | None
    """When its owner, or its last one, took it."""
    trace: TurnTrace
    steps: Sequence[Step] = ()
    verdicts: Sequence[Verdict] = ()
    later: Sequence[TraceSpan] = ()
    """Spans that are stored as such, in the order in which they ended."""

    @property
    def accepted_us(self) -> int:
        """When it was stored, in microseconds since 1970; turns of earlier versions know the millisecond."""
        return self.trace.accepted_us or self.turn.created_ms * 1000


class TurnRecords:
    """Reads turns for their traces."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, tenant: Tenant, turn_id: str) -> TurnRecord:
        """What is stored of a tenant's turn."""
        with self._database.read() as tx:
            return _record(tx, turn_row(tx, tenant, turn_id))

    def of(self, turn_ids: Sequence[str]) -> Mapping[str, TurnRecord]:
        """What is stored of these turns, by id; those that are gone are missing."""
        found: dict[str, TurnRecord] = {}
        with self._database.read() as tx:
            for turn_id in turn_ids:
                row = tx.execute(_TURN, {"our_id": turn_id}).mappings().first()
                if row is not None:
                    found[turn_id] = _record(tx, row)
        return found


def _record(tx: Connection, row: rows.Row) -> TurnRecord:
    parts = (row["traceparent"] or "").split("-")
    ours = {"our_id": row["id"]}
    return TurnRecord(
        turn=rows.turn(row, calls=read_calls(tx, row["id"])),
        trace_id=parts[1] if parts[1:] else span_id_of(row["id"], "trace") + span_id_of(row["id"]),
        parent_id=parts[2] if parts[2:] else None,
        claimed_us=row["claimed_us"],
        trace=TurnTrace.of(row["trace"]),
        steps=tuple(rows.step(step) for step in STEPS.all(tx, ours)),
        verdicts=read_verdicts(tx, row["id"]),
        later=tuple(TraceSpan.of_row(body) for body in reversed(tx.execute(_LATER, ours).scalars().all())),
    )


def add_spans(tx: Connection, told: LaterSpans, *, now_ms: int) -> None:
    """Store spans in the transaction that stores what they tell of; none of a turn that is gone."""
    turn = tx.execute(_TRACE, {"our_id": told.turn_id}).first()
    if turn is None:
        return
    is_exported = told.is_exported and not TurnTrace.of(turn.trace).is_unsampled
    for span in told.spans:
        row = {"turn_id": told.turn_id, "added_ms": now_ms, "body": span.as_row()}
        span_n = tx.execute(_ADD, row).scalar_one()
        if is_exported:
            enqueue_trace(tx, told.turn_id, span_n=span_n, now_ms=now_ms)


def last_ended(tx: Connection, lane: str, *, until_ms: int) -> TracedTurn | None:
    """The last turn of a lane that had ended by then; None if there is none, or it has no trace."""
    row = tx.execute(_LAST_ENDED, {"our_lane": lane, "until_ms": until_ms}).first()
    trace_id = None if row is None else rows.trace_id(row.traceparent)
    return None if row is None or trace_id is None else TracedTurn(row.id, trace_id)
