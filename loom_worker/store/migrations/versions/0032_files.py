"""Files: a table of them and one of the sessions that use them; turns, calls and messages name those that they hold."""

from pathlib import Path

from alembic import op

revision = "0032"
down_revision = "0031"


def upgrade() -> None:
    """Make the tables; turns and messages of before held text alone."""
    for statement in filter(str.strip, Path(__file__).with_suffix(".sql").read_text(encoding="utf-8").split(";")):
        op.get_bind().exec_driver_sql(statement)
