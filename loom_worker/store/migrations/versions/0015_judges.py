"""Verdicts of judges on answers, and what came of them."""

from pathlib import Path

from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    """Earlier answers were judged by nobody."""
    for statement in filter(str.strip, Path(__file__).with_suffix(".sql").read_text(encoding="utf-8").split(";\n")):
        op.get_bind().exec_driver_sql(statement)
