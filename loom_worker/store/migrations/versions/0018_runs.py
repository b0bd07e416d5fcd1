"""Runs of workflows: their rows, journals and event logs; turns that are stages of one mark it as due when they end."""

from pathlib import Path

from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    """Statements are separated by an empty line, for a trigger has semicolons inside."""
    for statement in filter(str.strip, Path(__file__).with_suffix(".sql").read_text(encoding="utf-8").split("\n\n")):
        op.get_bind().exec_driver_sql(statement)
