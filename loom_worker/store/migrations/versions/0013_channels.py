"""Channels: what a turn's answer must look like, and who of a channel is which user."""

from pathlib import Path

from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Earlier turns have no channel."""
    for statement in filter(str.strip, Path(__file__).with_suffix(".sql").read_text(encoding="utf-8").split(";\n")):
        op.get_bind().exec_driver_sql(statement)
