"""The messages of a session, which are only ever appended; and those that were recalled into its context."""

import json
from collections.abc import Callable, Sequence
from operator import itemgetter

from sqlalchemy import Connection, bindparam, func, select

from loom_worker.core.errors import Flaw, Invalid
from loom_worker.core.values.cutting import FIELD_BYTES
from loom_worker.core.values.pages import Page, no_cursor
from loom_worker.core.values.sessions import Message
from loom_worker.core.values.tenants import Tenant
from loom_worker.store import rows
from loom_worker.store.database import Database
from loom_worker.store.dialect import json_list, upsert
from loom_worker.store.engines.engine import Lock
from loom_worker.store.schema import messages
from loom_worker.store.sessions import found, of_lane
from loom_worker.store.tables import memory
from loom_worker.store.tenants import paged, the_row

# One character more than a list shows, to see whether a text was cut.
_LISTED = [
    func.substr(column, 1, FIELD_BYTES + 1).label("content") if column is messages.c.content else column
    for column in messages.c
]
_NAMED = select(messages).where(messages.c.id.in_(json_list("ids")))
_PROMOTED = select(memory.c.promoted).where(memory.c.lane == bindparam("our_lane"))
_new = upsert(memory).values(lane=bindparam("our_lane"), promoted=bindparam("promoted"))
_PROMOTE = _new.on_conflict_do_update(index_elements=["lane"], set_={"promoted": _new.excluded.promoted})


class Messages:
    """The table of messages."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def page(self, tenant: Tenant, session_id: str, *, limit: int, after: str | None) -> Page[Message]:
        """List a session's messages, oldest first; ``after`` is the id of the last one seen.

        Raises:
            NotFound: the tenant has no such session.
            Invalid: the session has no such message.
        """
        with self._database.read() as tx:
            lane = found(tx, tenant, session_id)["lane"]
            query = select(*_LISTED).where(messages.c.lane == lane).order_by(messages.c.n)
            if after is not None:
                seen = select(messages.c.n).where(messages.c.lane == lane, messages.c.id == after)
                last = tx.execute(seen).scalar()
                if last is None:
                    raise no_cursor(after)
                query = query.where(messages.c.n > last)
            return paged(tx, query, rows.message, limit=limit)

    def get(self, tenant: Tenant, session_id: str, message_id: str) -> Message:
        """Return one message of a session with its whole text.

        Raises:
            NotFound: there is no such session of the tenant, or no such message in the session.
        """
        with self._database.read() as tx:
            lane = found(tx, tenant, session_id)["lane"]
            query = select(messages).where(messages.c.lane == lane, messages.c.id == message_id)
            return rows.message(the_row(tx, query, f"message {message_id!r}"))


def messages_with_ids(tx: Connection, lane: str, ids: Sequence[str]) -> tuple[Message, ...]:
    """The messages of a session that have these ids, in the order of the conversation; unknown ids are ignored."""
    if not ids:
        return ()
    rows_with_ids = tx.execute(_NAMED, {"ids": json.dumps(list(ids))}).mappings()
    # With the lane in the query, or an order, SQLite would rather walk the whole session.
    ours = sorted((row for row in rows_with_ids if row["lane"] == lane), key=itemgetter("n"))
    return tuple(rows.message(row) for row in ours)


def recall(
    database: Database, lane: str, ids: Sequence[str], *, budget_tokens: int, tokens: Callable[[Sequence[Message]], int]
) -> int:
    """Add messages to the recalled ones; as ``Memories.promote``."""
    while True:
        with database.read() as tx:
            before = _recalled_ids(tx, lane)
            wanted = messages_with_ids(tx, lane, [*before, *ids])
        _refuse_unknown(ids, wanted)
        size_tokens = tokens(wanted)
        if size_tokens > budget_tokens and set(ids) - set(before):
            text = (
                f"The recalled messages would take {size_tokens} tokens of the {budget_tokens} there are for them; "
                "recall fewer, or clear those recalled before."
            )
            raise Invalid(text, (Flaw("/message_ids", text),), "recall-budget-exceeded")
        # Tokens are counted outside the transaction, so another recall may have come between.
        with database.write(durable=True, lock=Lock.lane(lane)) as tx:
            if _recalled_ids(tx, lane) == before:
                of_lane(tx, lane)
                tx.execute(_PROMOTE, {"our_lane": lane, "promoted": [message.id for message in wanted]})
                return size_tokens


def clear_recalled(tx: Connection, lane: str) -> int:
    """Take all recalled messages out of the context; return how many they were."""
    before = _recalled_ids(tx, lane)
    if before:
        tx.execute(_PROMOTE, {"our_lane": lane, "promoted": []})
    return len(before)


def _recalled_ids(tx: Connection, lane: str) -> list[str]:
    return tx.execute(_PROMOTED, {"our_lane": lane}).scalar() or []


def _refuse_unknown(ids: Sequence[str], wanted: Sequence[Message]) -> None:
    unknown = set(ids) - {message.id for message in wanted}
    if unknown:
        flaws = [
            Flaw(f"/message_ids/{at}", f"{message_id!r} is not a message of this session")
            for at, message_id in enumerate(ids)
            if message_id in unknown
        ]
        raise Invalid(f"This session has no message {', '.join(sorted(unknown))}.", tuple(flaws))
