"""Workspaces are rows, budgets have accounts, and costs are whole numbers: billionths of a USD."""

from pathlib import Path

from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Costs that were booked as binary fractions become the decimals that they stood for."""
    for statement in filter(str.strip, Path(__file__).with_suffix(".sql").read_text(encoding="utf-8").split(";\n")):
        op.get_bind().exec_driver_sql(statement)
