"""Messages that were recalled into the context: which ones, kept in the order of the conversation."""

import json
from collections.abc import Callable, Sequence
from operator import itemgetter

from sqlalchemy import Connection, bindparam, func, select
from sqlalchemy.dialects.sqlite import insert as upsert

from loom_worker.core.errors import Flaw, Invalid
from loom_worker.core.values.sessions import Message
from loom_worker.store import rows
from loom_worker.store.database import Database
from loom_worker.store.schema import memory, messages
from loom_worker.store.sessions import of_lane

# One parameter with all ids: SQLAlchemy takes 1 ms to spread a hundred.
_ids = select(func.json_each(bindparam("ids")).table_valued("value").c.value)
_NAMED = select(messages).where(messages.c.id.in_(_ids))
_PROMOTED = select(memory.c.promoted).where(memory.c.lane == bindparam("our_lane"))
_new = upsert(memory).values(lane=bindparam("our_lane"), promoted=bindparam("promoted"))
_PROMOTE = _new.on_conflict_do_update(index_elements=["lane"], set_={"promoted": _new.excluded.promoted})


def named(tx: Connection, lane: str, ids: Sequence[str]) -> tuple[Message, ...]:
    """The messages of a session with these ids, in the order of the conversation; others are left out."""
    if not ids:
        return ()
    found = tx.execute(_NAMED, {"ids": json.dumps(list(ids))}).mappings()
    # With the lane in the query, or an order, SQLite would rather walk the whole session.
    ours = sorted((row for row in found if row["lane"] == lane), key=itemgetter("n"))
    return tuple(rows.message(row) for row in ours)


def promote(
    database: Database,
    lane: str,
    ids: Sequence[str],
    *,
    budget_tokens: int,
    tokens: Callable[[Sequence[Message]], int],
) -> int:
    """Add messages to those recalled; as ``Memories.promote``."""
    while True:
        with database.read() as tx:
            before = _promoted(tx, lane)
            wanted = named(tx, lane, [*before, *ids])
        _refuse_unknown(ids, wanted)
        size_tokens = tokens(wanted)
        if size_tokens > budget_tokens and set(ids) - set(before):
            raise _too_large(size_tokens, budget_tokens)
        # Tokens are counted outside the transaction, so another promotion may have come between.
        with database.write(durable=True) as tx:
            if _promoted(tx, lane) == before:
                of_lane(tx, lane)
                tx.execute(_PROMOTE, {"our_lane": lane, "promoted": [message.id for message in wanted]})
                return size_tokens


def clear(tx: Connection, lane: str) -> int:
    """Take all recalled messages out of the context; return how many they were."""
    before = _promoted(tx, lane)
    if before:
        tx.execute(_PROMOTE, {"our_lane": lane, "promoted": []})
    return len(before)


def _promoted(tx: Connection, lane: str) -> list[str]:
    return tx.execute(_PROMOTED, {"our_lane": lane}).scalar() or []


def _refuse_unknown(ids: Sequence[str], wanted: Sequence[Message]) -> None:
    unknown = set(ids) - {message.id for message in wanted}
    if unknown:
        flaws = [
            Flaw(f"/message_ids/{at}", f"{named!r} is no message of this session")
            for at, named in enumerate(ids)
            if named in unknown
        ]
        raise Invalid(f"This session has no message {', '.join(sorted(unknown))}.", tuple(flaws))


def _too_large(size_tokens: int, budget_tokens: int) -> Invalid:
    text = (
        f"The recalled messages would take {size_tokens} tokens of the {budget_tokens} there are for them; recall "
        "fewer, or clear those recalled before."
    )
    return Invalid(text, (Flaw("/message_ids", text),), "recall-budget-exceeded")
