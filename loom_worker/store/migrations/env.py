"""Alembic's entry point: runs the migrations on the database that prepare.py names."""

from typing import Any

from alembic import context
from sqlalchemy import Connection, create_engine, event

from loom_worker.core.sqlite_driver import sqlite3
from loom_worker.store.file import into_wal
from loom_worker.store.schema import metadata

# Processes that start together wait for the one that migrates: on a busy machine it takes longer than the usual 5 s.
LOCK_WAIT_S = 60
engine = create_engine(context.config.attributes["url"], module=sqlite3, connect_args={"timeout": LOCK_WAIT_S})


@event.listens_for(engine, "connect")
def _connected(dbapi_connection: Any, _record: Any) -> None:
    dbapi_connection.isolation_level = None
    if dbapi_connection.execute("PRAGMA page_count").fetchone()[0] == 0:
        # Only before the first page is there can a file be set to become smaller in steps; later it takes a VACUUM.
        dbapi_connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
    into_wal(dbapi_connection, wait_s=LOCK_WAIT_S)


@event.listens_for(engine, "begin")
def _begin(connection: Connection) -> None:
    # All or nothing, and one at a time: of three processes that started together two failed half-way, and a process
    # that was killed in between left tables that no Loom would open.
    connection.exec_driver_sql("BEGIN IMMEDIATE")


with engine.connect() as connection:
    context.configure(
        connection=connection, target_metadata=metadata, version_table="loom_version", transactional_ddl=True
    )
    with context.begin_transaction():
        context.run_migrations()
engine.dispose()
