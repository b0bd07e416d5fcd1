"""Versions of agents, their labels, and which version each turn ran.

Sessions of before get the version that is newest when they go on; their system text stays.
"""

from pathlib import Path

from alembic import op

revision = "0024"
down_revision = "0023"


def upgrade() -> None:
    """Statements are separated by an empty line."""
    for statement in filter(str.strip, Path(__file__).with_suffix(".sql").read_text(encoding="utf-8").split("\n\n")):
        op.get_bind().exec_driver_sql(statement)
