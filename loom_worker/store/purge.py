"""What is left of deleted sessions goes in small batches: one transaction over all of it would stop every writer."""

from sqlalchemy import Connection, Integer, Table, bindparam, delete, func, select

from loom_worker.store.schema import (
    DELETED,
    agent_errors,
    memory,
    memory_snapshots,
    messages,
    sessions,
    turns,
    unfinished,
)

BATCH_CHARACTERS = 80_000
"""Of messages that are removed at a time: the search index takes each of them apart to forget its words."""
ROWS_OF_A_TURN = 10
"""A turn, with its steps, calls and deliveries, counts as so many rows; so does a snapshot with its long text."""

_SOME = select(sessions.c.lane).where(sessions.c.workspace == DELETED).limit(1)
_OLDEST = (
    select(messages.c.n, (func.length(messages.c.content) + func.coalesce(func.length(messages.c.grams), 0)))
    .where(messages.c.lane == bindparam("our_lane"))
    .order_by(messages.c.n)
    .limit(bindparam("most", type_=Integer))
)
_FORGET = delete(messages).where(messages.c.lane == bindparam("our_lane"), messages.c.n <= bindparam("last_n"))
_OPEN_TURNS = delete(turns).where(turns.c.lane == bindparam("our_lane"), unfinished())
_MEMORY = delete(memory).where(memory.c.lane == bindparam("our_lane"))
_SESSION = delete(sessions).where(sessions.c.lane == bindparam("our_lane"))


def forget_live(tx: Connection, lane: str) -> None:
    """Remove at once what others act on: turns that have not ended, and the memory that is due."""
    tx.execute(_OPEN_TURNS, {"our_lane": lane})
    tx.execute(_MEMORY, {"our_lane": lane})


def is_left(tx: Connection) -> bool:
    """True if a deleted session has rows."""
    return tx.execute(_SOME).scalar() is not None


def reap(tx: Connection, *, limit: int) -> int:
    """Remove the next rows of a deleted session, at last its own; return about how many, 0 if there is none."""
    lane = tx.execute(_SOME).scalar()
    if lane is None:
        return 0
    few = max(limit // ROWS_OF_A_TURN, 1)
    return (
        _messages(tx, lane, limit=limit)
        or _rows(tx, turns, lane, limit=few)
        or _rows(tx, memory_snapshots, lane, limit=few)
        or _rows(tx, agent_errors, lane, limit=few)
        or tx.execute(_SESSION, {"our_lane": lane}).rowcount
    )


def _messages(tx: Connection, lane: str, *, limit: int) -> int:
    last_n, characters = None, 0
    for n, length in tx.execute(_OLDEST, {"our_lane": lane, "most": limit}):
        characters += length
        if last_n is not None and characters > BATCH_CHARACTERS:
            break
        last_n = n
    if last_n is None:
        return 0
    return tx.execute(_FORGET, {"our_lane": lane, "last_n": last_n}).rowcount


def _rows(tx: Connection, table: Table, lane: str, *, limit: int) -> int:
    some = select(table.c.id).where(table.c.lane == lane).limit(limit)
    return tx.execute(delete(table).where(table.c.id.in_(some))).rowcount
