"""Which run and workflow each call was made for, and which model and user a turn has."""

from pathlib import Path

from alembic import op

revision = "0028"
down_revision = "0027"


def upgrade() -> None:
    """Statements are separated by an empty line. A run that is deleted by now has no workflow."""
    for statement in filter(str.strip, Path(__file__).with_suffix(".sql").read_text(encoding="utf-8").split("\n\n")):
        op.get_bind().exec_driver_sql(statement)
