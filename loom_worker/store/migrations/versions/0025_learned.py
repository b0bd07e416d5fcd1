"""Learned layers of agents in numbered versions, which of them is active, and which of them sessions and turns had."""

from pathlib import Path

from alembic import op

revision = "0025"
down_revision = "0024"


def upgrade() -> None:
    """Statements are separated by an empty line. Sessions that have begun have no learned layer."""
    for statement in filter(str.strip, Path(__file__).with_suffix(".sql").read_text(encoding="utf-8").split("\n\n")):
        op.get_bind().exec_driver_sql(statement)
