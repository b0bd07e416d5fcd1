"""How a client asks a turn to end."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Turns that were accepted before have no such request."""
    op.add_column("turns", sa.Column("cancel", sa.String(16)))
