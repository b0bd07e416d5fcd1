"""The form of a turn's webhook, and the headers of its deliveries: other protocols than Loom's own report ends, too."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    """Earlier webhooks have Loom's own form, and no headers of their own."""
    op.add_column("turns", sa.Column("webhook_form", sa.Text))
    op.get_bind().exec_driver_sql("ALTER TABLE outbox ADD COLUMN headers JSON")
