"""Former L2 texts, in swap."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, ScalarSelect, insert, select

from loom_worker.core.values.memory import Snapshot
from loom_worker.core.values.pages import Page, page_of
from loom_worker.store import rows
from loom_worker.store.reading import checked_cursor
from loom_worker.store.schema import memory_snapshots, messages

_INSERT = insert(memory_snapshots)


@dataclass(frozen=True, slots=True)
class NewSnapshot:
    """An L2 that is to be kept."""

    id: str
    """``snap_…``; sorts by time."""
    content: str
    token_count: int
    from_n: int
    to_n: int
    """Numbers of the first and the last message it speaks of."""
    snapshot_type: str = "l2_summary"


def add(tx: Connection, owner: Any, new: NewSnapshot, *, now_ms: int) -> None:
    """Insert a snapshot of a session, given by its row."""
    values = {name: getattr(new, name) for name in NewSnapshot.__slots__}
    tx.execute(_INSERT, {**values, "lane": owner["lane"], "session_id": owner["id"], "created_ms": now_ms})


def page(tx: Connection, lane: str, *, limit: int, after: str | None) -> Page[Snapshot]:
    """List a session's snapshots, the newest first; ``after`` is the id of the last one seen.

    Raises:
        Invalid: ``after`` is no id of a snapshot.
    """
    ends = (_id_of(memory_snapshots.c.from_n), _id_of(memory_snapshots.c.to_n))
    query = select(memory_snapshots, ends[0].label("from_message_id"), ends[1].label("to_message_id"))
    query = query.where(memory_snapshots.c.lane == lane).order_by(memory_snapshots.c.id.desc()).limit(limit + 1)
    if after is not None:
        query = query.where(memory_snapshots.c.id < checked_cursor(after, "snap_"))
    listed = map(rows.snapshot, tx.execute(query).mappings())
    return page_of(listed, limit=limit, cursor=lambda snapshot: snapshot.id)


def _id_of(n: ColumnElement[int]) -> ScalarSelect[str]:
    here = (messages.c.n == n, messages.c.lane == memory_snapshots.c.lane)
    return select(messages.c.id).where(*here).scalar_subquery()
