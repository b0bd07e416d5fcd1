"""The statuses of many turns at once, for those who wait for them."""

from collections.abc import Sequence

from sqlalchemy import bindparam, select

from loom_worker.store.database import Database
from loom_worker.store.schema import DELETED, sessions, turns

_STATUSES = (
    select(turns.c.id, turns.c.status)
    .join(sessions, sessions.c.lane == turns.c.lane)
    .where(turns.c.id.in_(bindparam("ids", expanding=True)), sessions.c.workspace != DELETED)
)


class TurnStatuses:
    """The statuses of turns of all workspaces: whoever asks has been found to be allowed to see the turn."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def of(self, turn_ids: Sequence[str]) -> dict[str, str]:
        """By id; turns of deleted sessions are missing.

        Raises:
            Unavailable: the database did not answer.
        """
        with self._database.read() as tx:
            return {row.id: row.status for row in tx.execute(_STATUSES, {"ids": list(turn_ids)})}
