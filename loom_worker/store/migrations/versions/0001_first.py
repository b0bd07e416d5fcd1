"""The first schema."""

from pathlib import Path

from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make all tables as they were then."""
    script = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
    for statement in filter(str.strip, script.split(";")):
        op.execute(statement)
