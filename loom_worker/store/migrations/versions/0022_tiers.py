"""Tiers of memory: summaries by date, facts with the sessions that say them, and what people had forgotten."""

from pathlib import Path

from alembic import op

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    """Statements are separated by an empty line."""
    for statement in filter(str.strip, Path(__file__).with_suffix(".sql").read_text(encoding="utf-8").split("\n\n")):
        op.get_bind().exec_driver_sql(statement)
