"""Schedules: which due times are dealt with, what was begun last, and what an operator has said."""

from pathlib import Path

from alembic import op

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    """Statements are separated by an empty line."""
    for statement in filter(str.strip, Path(__file__).with_suffix(".sql").read_text(encoding="utf-8").split("\n\n")):
        op.get_bind().exec_driver_sql(statement)
