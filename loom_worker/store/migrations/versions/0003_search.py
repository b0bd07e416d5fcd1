"""Everything ever said can be searched."""

from pathlib import Path

import sqlalchemy as sa
from alembic import op

from loom_worker.core.words import grams

revision = "0003"
down_revision = "0002"

_messages = sa.table("messages", sa.column("n"), sa.column("content"), sa.column("grams"))


def upgrade() -> None:
    """Make the index with its triggers, and put the messages there are into it."""
    script = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
    column, *index = filter(str.strip, script.split(";;\n"))
    op.execute(sa.text(column))
    _fill_grams(op.get_bind())
    for statement in index:
        op.get_bind().exec_driver_sql(statement)
    fill = "INSERT INTO messages_fts5 (rowid, lane, said, grams, tools) SELECT * FROM messages_searched ORDER BY n"
    op.get_bind().exec_driver_sql(fill)


def _fill_grams(tx: sa.Connection) -> None:
    """Index what people said; the results that tools gave before are found by their other words alone."""
    said = tx.execute(sa.select(_messages.c.n, _messages.c.content).where(_messages.c.content != ""))
    rows = [{"our_n": n, "new": found} for n, content in said if (found := grams(content)) is not None]
    if rows:
        tx.execute(
            sa.update(_messages).where(_messages.c.n == sa.bindparam("our_n")).values(grams=sa.bindparam("new")), rows
        )
