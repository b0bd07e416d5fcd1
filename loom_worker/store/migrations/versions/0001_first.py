"""The first schema."""

from alembic import op

from loom_worker.store import schema

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make all tables. Later versions alter; this one may still follow the schema file until the first release."""
    schema.metadata.create_all(op.get_bind())
