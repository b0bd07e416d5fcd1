"""What the tools of memory find, facts and summaries among it, is not searched: it repeats what was said."""

from pathlib import Path

from alembic import op

revision = "0026"
down_revision = "0025"


def upgrade() -> None:
    """Change the names that the index leaves out, and index the messages anew that hold them."""
    script = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
    for statement in filter(str.strip, script.split(";;\n")):
        op.get_bind().exec_driver_sql(statement)
