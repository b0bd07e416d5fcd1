"""Runs that are removed: those that are too old, and those of a user who is deleted."""

from sqlalchemy import ColumnElement, Connection, delete, select

from loom_worker.core.values.tenants import WorkspaceUser
from loom_worker.core.values.workspaces import Rules
from loom_worker.store.database import Database
from loom_worker.store.tables import workflow_runs, workspaces

DAY_MS = 24 * 3600 * 1000
RUNS = 20
"""Runs that a batch looks at: one of many stages has some megabytes."""


class OldRuns:
    """Runs that ended longer ago than conversations are kept: the setting bounds all, a workspace's rule its own."""

    def __init__(self, database: Database, conversation_days: int) -> None:
        """Args: conversation_days: 0: only rules of workspaces bound them."""
        self._database = database
        self._days = conversation_days or None

    def remove_some(self, after: str, before_ms: int) -> str:
        """As ``_Expiry`` of ``retention.py``; the key is a run's id, the moment is now."""
        with self._database.read() as tx:
            stored = tx.execute(select(workspaces.c.name, workspaces.c.rules)).all()
            days = {row.name: Rules.of(row.rules).retention_days for row in stored}
            if self._days is None and not any(kept is not None for kept in days.values()):
                return ""
            some = select(workflow_runs.c.id, workflow_runs.c.workspace, workflow_runs.c.completed_ms)
            found = tx.execute(some.where(workflow_runs.c.id > after).order_by(workflow_runs.c.id).limit(RUNS)).all()
        for row in found:
            bounds = [each for each in (self._days, days.get(row.workspace)) if each is not None]
            if bounds and row.completed_ms is not None and row.completed_ms < before_ms - min(bounds) * DAY_MS:
                with self._database.write() as tx:
                    tx.execute(delete(workflow_runs).where(workflow_runs.c.id == row.id))
        return found[-1].id if len(found) == RUNS else ""


def has_runs(tx: Connection, who: WorkspaceUser) -> bool:
    """True if the user has a run."""
    return tx.execute(select(workflow_runs.c.id).where(*_of(who)).limit(1)).first() is not None


def remove_runs(tx: Connection, who: WorkspaceUser) -> int:
    """Remove the next runs of a user; how many. Their sessions go by themselves."""
    some = select(workflow_runs.c.id).where(*_of(who)).limit(RUNS)
    return tx.execute(delete(workflow_runs).where(workflow_runs.c.id.in_(some))).rowcount


def _of(who: WorkspaceUser) -> tuple[ColumnElement[bool], ...]:
    return workflow_runs.c.workspace == who.workspace, workflow_runs.c.user == who.user
