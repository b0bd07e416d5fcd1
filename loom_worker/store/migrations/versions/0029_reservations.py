"""What is set aside on budgets has rows, so that it can be settled once whoever set it aside has died."""

from pathlib import Path

from alembic import op

revision = "0029"
down_revision = "0028"


def upgrade() -> None:
    """Make the table; what was set aside before counts as spent."""
    op.get_bind().exec_driver_sql(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
