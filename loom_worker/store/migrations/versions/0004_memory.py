"""A session's memory apart from its messages, and its choice of the agent's tools and databases."""

from pathlib import Path

from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Sessions that are there keep all their messages in L1 until they are compressed."""
    for statement in filter(str.strip, Path(__file__).with_suffix(".sql").read_text(encoding="utf-8").split(";\n")):
        op.get_bind().exec_driver_sql(statement)
