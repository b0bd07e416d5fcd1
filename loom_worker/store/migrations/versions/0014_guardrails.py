"""What guardrails decided on messages and results, and how often they did what."""

from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """Nothing was decided before."""
    op.get_bind().exec_driver_sql("ALTER TABLE turns ADD COLUMN guard JSON")
    op.get_bind().exec_driver_sql("ALTER TABLE calls ADD COLUMN guard JSON")
    op.get_bind().exec_driver_sql(
        "CREATE TABLE guard_actions (workspace VARCHAR(64) NOT NULL, name VARCHAR(32) NOT NULL, "
        "action VARCHAR(16) NOT NULL, times INTEGER NOT NULL, PRIMARY KEY (workspace, name, action))"
    )
