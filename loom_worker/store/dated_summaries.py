"""Summaries by date: added with the step of memory that wrote them, and found by the time that they are about."""

from typing import Any

from sqlalchemy import Connection, delete, func, insert, select

from loom_worker.core.values.memory import DatedSummary
from loom_worker.core.values.tiers import Scope
from loom_worker.store.database import Database
from loom_worker.store.schema import sessions
from loom_worker.store.sessions import find_lane, within
from loom_worker.store.tables import dated_summaries

_COLUMNS = [dated_summaries.c[name] for name in DatedSummary.__slots__]


class DatedSummaries:
    """The table of summaries by date."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def between(self, lane: str, scope: Scope, *, from_ms: int, to_ms: int, limit: int) -> tuple[DatedSummary, ...]:
        """Summaries that are about some of this time, of the sessions that a session may look into, the oldest first.

        Args:
            from_ms: the first moment.
            to_ms: the first moment that is too late.
            limit: most summaries, the oldest.
        """
        with self._database.read() as tx:
            own = find_lane(tx, lane)
            if own is None:
                return ()
            # Through the session, so that those of a deleted one are gone at once.
            query = select(*_COLUMNS).join(sessions, sessions.c.lane == dated_summaries.c.lane)
            query = query.where(*within(own, scope))
            query = query.where(dated_summaries.c.to_ms >= from_ms, dated_summaries.c.from_ms < to_ms)
            query = query.order_by(dated_summaries.c.from_ms, dated_summaries.c.id).limit(limit)
            return tuple(DatedSummary(**row) for row in tx.execute(query).mappings())

    def figures(self, lane: str) -> tuple[int, int, int | None]:
        """How many a session has, of how many messages, and when the last of these was said."""
        table = dated_summaries
        sums = select(func.count(), func.coalesce(func.sum(table.c.messages), 0), func.max(table.c.to_ms))
        with self._database.read() as tx:
            summaries, messages, to_ms = tx.execute(sums.where(table.c.lane == lane)).one()
        return summaries, int(messages), to_ms


def add_dated(tx: Connection, session: Any, summary: DatedSummary) -> None:
    """Insert a summary; ``session``: the row of its session."""
    values = {name: getattr(summary, name) for name in DatedSummary.__slots__}
    tx.execute(insert(dated_summaries), {**values, "lane": session["lane"]})


def remove_dated(tx: Connection, lane: str, last_n: int) -> None:
    """Delete those whose last message has at most this number, as the messages are deleted."""
    table = dated_summaries
    tx.execute(delete(table).where(table.c.lane == lane, table.c.to_n <= last_n))
