"""The audit, with triggers that keep its rows as they are; deletions of users that are not done yet."""

from pathlib import Path

from alembic import op

from loom_worker.core.sqlite_driver import sqlite3

revision = "0011"
down_revision = "0010"

FORGETS = (3, 42)
"""Versions of SQLite whose full-text index can remove words at once: https://sqlite.org/fts5.html#the_secure_delete_configuration_option."""


def upgrade() -> None:
    """Statements are separated by an empty line, for a trigger has semicolons inside."""
    for statement in filter(str.strip, Path(__file__).with_suffix(".sql").read_text(encoding="utf-8").split("\n\n")):
        op.get_bind().exec_driver_sql(statement)
    if sqlite3.sqlite_version_info >= FORGETS:
        # Else the index keeps the words of what is deleted until it happens to merge its segments.
        for command in ("messages_fts5, rank) VALUES ('secure-delete', 1", "messages_fts5) VALUES ('optimize'"):
            op.get_bind().exec_driver_sql(f"INSERT INTO messages_fts5({command})")
