"""Removes what is left of deleted sessions in small batches: one transaction for all of it would stop every writer."""

from sqlalchemy import Connection, Integer, Table, bindparam, delete, func, select

from loom_worker.store.prepared import PreparedStatement
from loom_worker.store.schema import DELETED, agent_errors, messages, sessions, turns, unfinished
from loom_worker.store.tables import dated_summaries, memory, memory_snapshots

REST_S = 0.002
"""Pause after a batch. The lock of the process goes to the first that asks, which would be the thread that has just
released it."""
BATCH_CHARACTERS = 16_000
"""Characters of the messages that are removed at a time. The search index parses each of them and overwrites its words
at once (0011_audit.py): 1.1 ms for a message of 100 words, a twelfth of that if it left them until it merges."""
ROWS_OF_A_TURN = 10
"""What a turn with its steps, calls and deliveries counts for, and a snapshot with its long text."""

_A_DELETED_LANE = PreparedStatement(select(sessions.c.lane).where(sessions.c.workspace == DELETED).limit(1))
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


def remove_live_rows(tx: Connection, lane: str) -> None:
    """Remove at once what others act on: turns that have not ended, and the memory, which may be due."""
    tx.execute(_OPEN_TURNS, {"our_lane": lane})
    tx.execute(_MEMORY, {"our_lane": lane})


def has_rows(tx: Connection) -> bool:
    """True if a deleted session still has rows."""
    return _A_DELETED_LANE.first(tx, {}) is not None


def remove_batch(tx: Connection, *, limit: int) -> int:
    """Remove the next rows of a deleted session, its own row last; return about how many, 0 if none are left."""
    found = _A_DELETED_LANE.first(tx, {})
    if found is None:
        return 0
    lane = found["lane"]
    few = max(limit // ROWS_OF_A_TURN, 1)
    return (
        _messages(tx, lane, limit=limit)
        or _rows(tx, turns, lane, limit=few)
        or _rows(tx, memory_snapshots, lane, limit=few)
        or _rows(tx, dated_summaries, lane, limit=few)
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
