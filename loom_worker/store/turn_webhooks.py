"""The webhook of a turn that was accepted before: set, replaced or taken away while the turn has not ended."""

from sqlalchemy import update

from loom_worker.core.errors import Conflict
from loom_worker.core.values.tenants import Tenant
from loom_worker.core.values.turns import Turn
from loom_worker.core.values.webhooks import Webhook
from loom_worker.store import rows
from loom_worker.store.database import Database
from loom_worker.store.schema import turns
from loom_worker.store.turns import read_turn, turn_row

SET = "webhook-set"
"""The problem of a second webhook for a turn."""


def set_webhook(database: Database, tenant: Tenant, turn_id: str, webhook: Webhook | None) -> Turn:
    """Have the end of a turn reported to a webhook; None: to none. The worker that ends it finds the change.

    Raises:
        NotFound: the tenant has no such turn.
        Conflict: the turn has ended, or has a webhook under another name already, which is not replaced.
        Unavailable: the database did not answer; nothing was changed.
    """
    with database.write(durable=True) as tx:
        row = turn_row(tx, tenant, turn_id)
        known = rows.webhook(row)
        if row["completed_ms"] is not None:
            raise Conflict(f"Turn {turn_id} has ended, and its webhook with it.", "turn-ended")
        if webhook is not None and known is not None and known.name != webhook.name:
            raise Conflict(f"Turn {turn_id} has a webhook already, and a turn has one.", SET)
        tx.execute(update(turns).where(turns.c.id == turn_id).values(rows.webhook_columns(webhook)))
        return read_turn(tx, turn_row(tx, tenant, turn_id))
