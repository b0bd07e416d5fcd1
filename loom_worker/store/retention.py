"""What is removed with time: journals and deliveries of ended turns, old conversations, and the room they took.

Called with every sweep, it looks at a few rows and removes a few, each batch in a transaction of some milliseconds.
Each kind is walked through by its primary key, whose ids sort by time, and then left alone for a while.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from sqlalchemy import Text, cast, delete, func, select

from loom_worker.core.settings import RetentionSettings
from loom_worker.core.values.ids import sortable_id
from loom_worker.store import conversations
from loom_worker.store.database import Database
from loom_worker.store.schema import outbox, steps, turns, unfinished
from loom_worker.store.space import give_back

DAY_MS = 24 * 3600 * 1000
BATCHES = 10
"""Of each kind, in one sweep."""
LOOKED_AT = 50
"""Turns, deliveries or sessions that a batch looks at."""
BATCH_BYTES = 100_000
"""That a batch removes at most, unless one row alone has more: each page of it is overwritten."""
PAUSE_MS = 10 * 60 * 1000
"""Behind a walk through a whole table."""
REST_S = 0.002
"""Behind a batch: the lock of the process goes to whoever asks first, which would be the thread that released it."""

Batch = Callable[[str, int], str]
"""Removes some of what is older than a moment in ms, behind a key; returns the key to go on from, empty at the end."""


@dataclass(slots=True)
class _Walk:
    batch: Batch
    keep_ms: int
    after: str = ""
    rests_until_ms: int = 0


class Retention:
    """Removes what is older than the settings say; one for each process that sweeps."""

    def __init__(self, database: Database, settings: RetentionSettings) -> None:
        """Keep for ever whatever has 0 days."""
        self._database = database
        days = (
            (self._journals, settings.journal_days),
            (self._deliveries, settings.journal_days),
            (self._conversations, settings.conversation_days),
        )
        self._walks = [_Walk(batch, kept * DAY_MS) for batch, kept in days if kept]

    def once(self, now_ms: int) -> None:
        """Remove some of what is too old, and give some free pages back to the disk.

        Raises:
            Unavailable: the database did not answer.
        """
        for walk in self._walks:
            if now_ms >= walk.rests_until_ms:
                self._go(walk, now_ms)
        give_back(self._database)

    def _go(self, walk: _Walk, now_ms: int) -> None:
        for _ in range(BATCHES):
            walk.after = walk.batch(walk.after, now_ms - walk.keep_ms)
            if not walk.after:
                walk.rests_until_ms = now_ms + PAUSE_MS
                return
            time.sleep(REST_S)

    def _journals(self, after: str, before_ms: int) -> str:
        """Steps of turns that ended before; the turns stay. A turn that ended later, or has not, keeps all of them."""
        behind = (steps.c.turn_id > after, steps.c.turn_id < sortable_id("turn_", now_ms=before_ms, chance=0))
        size = func.sum(func.length(cast(steps.c.payload, Text)))
        some = select(steps.c.turn_id, size).where(*behind).group_by(steps.c.turn_id).order_by(steps.c.turn_id)
        with self._database.read() as tx:
            found = tx.execute(some.limit(LOOKED_AT)).all()
        for ids in _fitting((row[0], row[1]) for row in found):
            old = select(turns.c.id).where(turns.c.id.in_(ids), turns.c.completed_ms < before_ms, ~unfinished())
            with self._database.write() as tx:
                tx.execute(delete(steps).where(steps.c.turn_id.in_(old)))
        return found[-1][0] if len(found) == LOOKED_AT else ""

    def _deliveries(self, after: str, before_ms: int) -> str:
        """Deliveries that were delivered or given up; one that is pending stays, whatever its age."""
        behind = (outbox.c.id > after, outbox.c.id < sortable_id("whd_", now_ms=before_ms, chance=0))
        some = select(outbox.c.id, func.length(outbox.c.body)).where(*behind).order_by(outbox.c.id)
        is_done = (outbox.c.status != "pending", func.coalesce(outbox.c.delivered_ms, outbox.c.created_ms) < before_ms)
        with self._database.read() as tx:
            found = tx.execute(some.limit(LOOKED_AT)).all()
        for ids in _fitting((row[0], row[1]) for row in found):
            with self._database.write() as tx:
                tx.execute(delete(outbox).where(outbox.c.id.in_(ids), *is_done))
        return found[-1][0] if len(found) == LOOKED_AT else ""

    def _conversations(self, after: str, before_ms: int) -> str:
        return conversations.expire(self._database, after=after, before_ms=before_ms)


def _fitting(sized: Iterable[tuple[str, int]]) -> Iterator[list[str]]:
    """The ids in groups, each of which holds at most BATCH_BYTES or one id."""
    group: list[str] = []
    size = 0
    for one, length in sized:
        if group and size + length > BATCH_BYTES:
            yield group
            group, size = [], 0
        group.append(one)
        size += length
    if group:
        yield group
