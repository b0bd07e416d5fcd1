"""A turn may carry the date on which it was said elsewhere."""

from alembic import op

revision = "0030"
down_revision = "0029"


def upgrade() -> None:
    """Add the column; turns of before were said when they came."""
    op.get_bind().exec_driver_sql("ALTER TABLE turns ADD COLUMN said_ms BIGINT")
