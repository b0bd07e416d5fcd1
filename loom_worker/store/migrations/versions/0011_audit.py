"""The audit, with triggers that keep its rows as they are; deletions of users that are not done yet."""

from alembic import op

from loom_worker.core.sqlite_driver import sqlite3
from loom_worker.store.prepare import script_of

revision = "0011"
down_revision = "0010"

FORGETS = (3, 42)
"""Versions of SQLite whose full-text index can remove words at once: https://sqlite.org/fts5.html#the_secure_delete_configuration_option."""


def upgrade() -> None:
    """Run the script, and have the index remove words at once."""
    script_of(__file__)()
    if sqlite3.sqlite_version_info >= FORGETS:
        # Else the index keeps the words of what is deleted until it happens to merge its segments.
        for command in ("messages_fts5, rank) VALUES ('secure-delete', 1", "messages_fts5) VALUES ('optimize'"):
            op.get_bind().exec_driver_sql(f"INSERT INTO messages_fts5({command})")
