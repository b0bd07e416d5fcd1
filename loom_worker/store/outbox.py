"""Webhook deliveries: stored with the turn's end, sent by one worker at a time, kept until delivered or given up."""

from sqlalchemy import BigInteger, ColumnElement, Connection, Integer, bindparam, insert, literal_column, select, update

from loom_worker.core.errors import NotFound
from loom_worker.core.values.ids import now_ms as moment_ms
from loom_worker.core.values.notifications import Delivery
from loom_worker.core.values.pages import Page
from loom_worker.core.values.spans import LaterSpans
from loom_worker.core.values.tenants import LOCAL, Actor, Tenant, workspace_of
from loom_worker.store import rows
from loom_worker.store.audit import note_act
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import Lock
from loom_worker.store.prepared import PreparedStatement
from loom_worker.store.schema import kept_delivery, outbox, turns
from loom_worker.store.tenants import checked_cursor, newest_first, of_session, ours, paged
from loom_worker.store.turn_records import add_spans

_INSERT = insert(outbox)
_DUE = PreparedStatement(
    select(outbox.c.id)
    .where(
        outbox.c.status == literal_column("'pending'"),  # as in the partial index outbox_due
        outbox.c.next_ms <= bindparam("now_ms", type_=BigInteger),
        kept_delivery(),
    )
    .order_by(outbox.c.next_ms)
    .limit(bindparam("most", type_=Integer))
)


def enqueue_delivery(tx: Connection, delivery: Delivery) -> None:
    """Store a delivery in the transaction that changes what it reports."""
    tx.execute(_INSERT, {name: getattr(delivery, name) for name in Delivery.__slots__})


class Outbox:
    """The table of deliveries."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def due(self, *, now_ms: int, limit: int) -> tuple[str, ...]:
        """Ids of deliveries whose next attempt is due."""
        with self._database.read() as tx:
            return tuple(row["id"] for row in _DUE.all(tx, {"now_ms": now_ms, "most": limit}))

    def take(self, delivery_id: str, *, now_ms: int, hold_ms: int) -> Delivery | None:
        """Take a due delivery for one attempt; None if it is not due, for another worker has it.

        Args:
            hold_ms: if this worker dies, the delivery is due again after this time.
        """
        is_due = (outbox.c.status == "pending", outbox.c.next_ms <= now_ms, kept_delivery())
        mine = (outbox.c.id == delivery_id, *is_due)
        with self._database.write(lock=Lock.named("delivery", delivery_id)) as tx:
            if tx.execute(update(outbox).where(*mine).values(next_ms=now_ms + hold_ms)).rowcount != 1:
                return None
            return rows.delivery(tx.execute(select(outbox).where(outbox.c.id == delivery_id)).mappings().one())

    def save(self, delivery: Delivery, told: LaterSpans | None = None) -> None:
        """Store the state after an attempt, and the span of the attempt."""
        names = ("status", "attempts", "next_ms", "delivered_ms", "last_status", "last_error")
        with self._database.write(lock=Lock.named("delivery", delivery.id)) as tx:
            values = {name: getattr(delivery, name) for name in names}
            tx.execute(update(outbox).where(outbox.c.id == delivery.id).values(**values))
            if told is not None:
                add_spans(tx, told, now_ms=moment_ms())

    def replay(self, tenant: Tenant, delivery_id: str, *, now_ms: int, by: Actor = LOCAL) -> Delivery:
        """Make a delivery due now, with all its attempts anew.

        Raises:
            NotFound: the tenant has no such delivery.
        """
        mine = (outbox.c.id == delivery_id, *_of(tenant))
        with self._database.write(durable=True, lock=Lock.named("delivery", delivery_id)) as tx:
            again = {"status": "pending", "attempts": 0, "next_ms": now_ms, "delivered_ms": None}
            if tx.execute(update(outbox).where(*mine).values(**again)).rowcount != 1:
                raise NotFound(f"There is no delivery {delivery_id!r}.")
            delivery = rows.delivery(tx.execute(select(outbox).where(*mine)).mappings().one())
            about = {"turn_id": delivery.turn_id, "subject": delivery.id}
            note_act(tx, "delivery.replayed", by, workspace=delivery.workspace, at_ms=now_ms, **about)
            return delivery

    def page(self, tenant: Tenant, *, limit: int, after: str | None) -> Page[Delivery]:
        """List deliveries, the newest first; ``after`` is the id of the last one seen."""
        query = newest_first(select(outbox).where(*_of(tenant)), outbox.c.id, checked_cursor(after, "whd_"))
        with self._database.read() as tx:
            return paged(tx, query, rows.delivery, limit=limit)


def _of(tenant: Tenant) -> list[ColumnElement[bool]]:
    """True of the deliveries of the tenant's turns; the first condition alone finds them by an index."""
    turn = select(turns.c.id).where(turns.c.id == outbox.c.turn_id, of_session(turns.c.lane, ours(tenant)))
    return [outbox.c.workspace == workspace_of(tenant), turn.exists()]
