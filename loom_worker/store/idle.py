"""Sessions that nobody used for longer than they are kept: the setting bounds all, a workspace's rule its own."""

from sqlalchemy import select

from loom_worker.core.values.ids import now_ms as moment_ms
from loom_worker.core.values.tenants import RETENTION
from loom_worker.core.values.workspaces import Rules
from loom_worker.store.database import Database
from loom_worker.store.removal import remove
from loom_worker.store.schema import outbox, sessions, turns, unfinished
from loom_worker.store.tables import workspaces

DAY_MS = 24 * 3600 * 1000
SESSIONS = 20
"""Sessions that a batch looks at."""

_has_open = select(turns.c.id).where(turns.c.lane == sessions.c.lane, unfinished()).exists()
_has_pending = (
    select(outbox.c.id)
    .join(turns, turns.c.id == outbox.c.turn_id)
    .where(turns.c.lane == sessions.c.lane, outbox.c.status == "pending")
    .exists()
)


class IdleSessions:
    """Sessions of the workspaces whose rules say how long an unused one is kept."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def remove_some(self, after: str, before_ms: int) -> str:
        """As ``_Expiry`` of ``retention.py``; the key is a session's lane, the moment is now."""
        with self._database.read() as tx:
            stored = tx.execute(select(workspaces.c.name, workspaces.c.rules)).all()
        days = {row.name: Rules.of(row.rules).retention_days for row in stored}
        kept_ms = {name: kept * DAY_MS for name, kept in days.items() if kept is not None}
        if not kept_ms:
            return ""
        some = select(sessions.c.lane, sessions.c.workspace, sessions.c.updated_ms)
        some = some.where(sessions.c.lane > after, sessions.c.workspace.in_(kept_ms))
        with self._database.read() as tx:
            found = tx.execute(some.order_by(sessions.c.lane).limit(SESSIONS)).all()
        for row in found:
            if row.updated_ms < before_ms - kept_ms[row.workspace]:
                delete_idle(self._database, row.lane, before_ms - kept_ms[row.workspace])
        return found[-1].lane if len(found) == SESSIONS else ""


def delete_idle(database: Database, lane: str, before_ms: int) -> None:
    """Delete a session that was last used before a moment, unless a turn is open or a webhook to be sent."""
    is_idle = (sessions.c.lane == lane, sessions.c.updated_ms < before_ms, ~_has_open)
    with database.read() as tx:  # the webhooks of a long session take a while to look through
        if tx.execute(select(sessions.c.lane).where(*is_idle, ~_has_pending)).first() is None:
            return
    with database.write() as tx:
        row = tx.execute(select(sessions).where(*is_idle)).mappings().first()
        if row is not None:
            remove(tx, row, RETENTION, now_ms=moment_ms())
