"""Spans that are stored as such, because no journal tells of them: what follows a turn's end, or goes on beside it."""

from sqlalchemy import Connection, bindparam, insert, select

from loom_worker.core.values.spans import LaterSpans
from loom_worker.core.values.traces import TracedTurn
from loom_worker.store.schema import turns
from loom_worker.store.trace_tables import spans

_INSERT = insert(spans)
_LAST_ENDED = (
    select(turns.c.id, turns.c.traceparent)
    .where(turns.c.lane == bindparam("our_lane"), turns.c.completed_ms <= bindparam("until_ms"))
    .order_by(turns.c.seq.desc())
    .limit(1)
)
_IS_THERE = select(turns.c.id).where(turns.c.id == bindparam("our_id"))


def add_spans(tx: Connection, told: LaterSpans, *, now_ms: int) -> None:
    """Store spans in the transaction that stores what they tell of; none of a turn that is gone."""
    if told.spans and tx.execute(_IS_THERE, {"our_id": told.turn_id}).first() is not None:
        rows = [{"turn_id": told.turn_id, "added_ms": now_ms, "body": span.as_row()} for span in told.spans]
        tx.execute(_INSERT, rows)


def last_ended(tx: Connection, lane: str, *, until_ms: int) -> TracedTurn | None:
    """The last turn of a lane that had ended by then; None if there is none, or it has no trace."""
    row = tx.execute(_LAST_ENDED, {"our_lane": lane, "until_ms": until_ms}).first()
    return None if row is None or not row.traceparent else TracedTurn(row.id, row.traceparent.split("-")[1])
