"""A turn's answer may have to be JSON of a given form."""

from alembic import op

revision = "0031"
down_revision = "0030"


def upgrade() -> None:
    """Add the column; the answers of earlier turns are texts."""
    op.get_bind().exec_driver_sql("ALTER TABLE turns ADD COLUMN response_format JSON")
