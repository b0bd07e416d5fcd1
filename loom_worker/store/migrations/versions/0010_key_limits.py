"""How much may be done with an API key in a minute, and with which key a turn was submitted."""

from pathlib import Path

from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Keys have no limits of their own; earlier turns and costs have no key."""
    for statement in filter(str.strip, Path(__file__).with_suffix(".sql").read_text(encoding="utf-8").split(";\n")):
        op.get_bind().exec_driver_sql(statement)
