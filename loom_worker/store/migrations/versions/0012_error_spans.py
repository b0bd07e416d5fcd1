"""In which span an error occurred."""

from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Earlier errors name none."""
    op.get_bind().exec_driver_sql("ALTER TABLE agent_errors ADD COLUMN span_id VARCHAR(16)")
