"""Vectors of messages, and how far the messages of each session are embedded."""

from pathlib import Path

from alembic import op

revision = "0023"
down_revision = "0022"

BINARY = {"sqlite": "BLOB", "postgresql": "BYTEA"}
"""What a column of bytes is called; elsewhere a type that holds the longest vectors, of 4,096 dimensions."""


def upgrade() -> None:
    """Statements are separated by an empty line."""
    text = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
    text = text.replace("BINARY_COLUMN", BINARY.get(op.get_bind().dialect.name, "BLOB"))
    for statement in filter(str.strip, text.split("\n\n")):
        op.get_bind().exec_driver_sql(statement)
