"""Old conversations: sessions that nobody used for long, and in those that go on what has left the model's context."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, bindparam, delete, func, select, update

from loom_worker.store.database import Database
from loom_worker.store.purge import BATCH_CHARACTERS
from loom_worker.store.schema import DELETED, memory, memory_snapshots, messages, outbox, sessions, turns, unfinished

SESSIONS = 20
"""Looked at in one batch."""
MESSAGES = 100
"""Looked at in one session at a time, or all of its oldest turn."""
ROUNDS = 5
"""Batches of one session, before the next one has its turn."""

_has_open = select(turns.c.id).where(turns.c.lane == sessions.c.lane, unfinished()).exists()
_has_pending = (
    select(outbox.c.id)
    .join(turns, turns.c.id == outbox.c.turn_id)
    .where(turns.c.lane == sessions.c.lane, outbox.c.status == "pending")
    .exists()
)
_OLDEST = (
    select(
        messages.c.n,
        messages.c.turn_id,
        messages.c.created_ms,
        (func.length(messages.c.content) + func.coalesce(func.length(messages.c.grams), 0)).label("characters"),
    )
    .where(messages.c.lane == bindparam("our_lane"))
    .order_by(messages.c.n)
)
_FIRST_N = select(memory.c.first_n).where(memory.c.lane == bindparam("our_lane"))


@dataclass(frozen=True, slots=True)
class _Past:
    """Whole turns at the beginning of a session."""

    last_n: int
    """Of their last message."""
    last_turn: str


def expire(database: Database, *, after: str, before_ms: int) -> str:
    """Remove some conversations, or beginnings of them, that are older than a moment; look at the next few sessions.

    A session whose last turn was accepted and ended before is deleted as by its user. In one that goes on, turns that
    ended before go once none of their messages is in L1. A turn that has not ended, or has a webhook to send, keeps
    its session from being deleted, and keeps all that came after it.

    Args:
        after: the last lane that was looked at; empty: begin.

    Returns:
        The lane to go on after; empty at the end.

    Raises:
        Unavailable: the database did not answer.
    """
    is_old = sessions.c.created_ms < before_ms
    some = select(sessions.c.lane, sessions.c.updated_ms, sessions.c.workspace, is_old.label("is_old"))
    with database.read() as tx:
        found = tx.execute(some.where(sessions.c.lane > after).order_by(sessions.c.lane).limit(SESSIONS)).all()
    for row in found:
        if row.is_old and row.workspace != DELETED:
            if row.updated_ms < before_ms:
                _delete(database, row.lane, before_ms)
            else:
                _shorten(database, row.lane, before_ms)
    return found[-1].lane if len(found) == SESSIONS else ""


def _delete(database: Database, lane: str, before_ms: int) -> None:
    is_idle = (sessions.c.lane == lane, sessions.c.updated_ms < before_ms, ~_has_open)
    with database.read() as tx:  # the webhooks of a long session take a while to look through
        if tx.execute(select(sessions.c.lane).where(*is_idle, ~_has_pending)).first() is None:
            return
    with database.write() as tx:
        gone = update(sessions).where(*is_idle).values(workspace=DELETED, id=lane)
        if tx.execute(gone).rowcount:
            tx.execute(delete(memory).where(memory.c.lane == lane))


def _shorten(database: Database, lane: str, before_ms: int) -> None:
    for _ in range(ROUNDS):
        with database.read() as tx:
            past = _past(tx, lane, before_ms)
        if past is None:
            return
        _remove(database, lane, past, before_ms)


def _remove(database: Database, lane: str, past: _Past, before_ms: int) -> None:
    with database.write() as tx:
        tx.execute(delete(messages).where(messages.c.lane == lane, messages.c.n <= past.last_n))
        up_to = select(turns.c.seq).where(turns.c.id == past.last_turn).scalar_subquery()
        is_done = (turns.c.completed_ms < before_ms, ~unfinished())
        tx.execute(delete(turns).where(turns.c.lane == lane, turns.c.seq <= up_to, *is_done))
        snapshots = memory_snapshots
        tx.execute(delete(snapshots).where(snapshots.c.lane == lane, snapshots.c.to_n <= past.last_n))


def _past(tx: Connection, lane: str, before_ms: int, *, most: int = MESSAGES) -> _Past | None:
    first_n = tx.execute(_FIRST_N, {"our_lane": lane}).scalar() or 0
    rows: Sequence[Any] = tx.execute(_OLDEST.limit(most + 1), {"our_lane": lane}).all()
    kept = _kept_turns(tx, [row.turn_id for row in rows], before_ms)
    past: _Past | None = None
    characters = 0
    for row, following in zip(rows[:most], [*rows[1:], None][:most], strict=True):
        characters += row.characters
        if row.n >= first_n or row.created_ms >= before_ms or row.turn_id in kept:
            return past
        if past is not None and characters > BATCH_CHARACTERS:
            return past
        if following is None or following.turn_id != row.turn_id:
            past = _Past(row.n, row.turn_id)
    is_cut = past is None and len(rows) > most
    return _past(tx, lane, before_ms, most=2 * most) if is_cut else past


def _kept_turns(tx: Connection, turn_ids: list[str], before_ms: int) -> frozenset[str]:
    """Those that have not ended before, or whose webhook is still to be sent."""
    is_young: ColumnElement[bool] = func.coalesce(turns.c.completed_ms, before_ms) >= before_ms
    has_pending = select(outbox.c.id).where(outbox.c.turn_id == turns.c.id, outbox.c.status == "pending").exists()
    found = select(turns.c.id).where(turns.c.id.in_(set(turn_ids)), is_young | has_pending)
    return frozenset(tx.execute(found).scalars())
