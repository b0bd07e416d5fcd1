"""Rows changed as somebody does who knows of the triggers."""

from sqlalchemy import Connection

from loom_worker.store.dialect import is_postgresql


def without_triggers(tx: Connection, *names: str) -> None:
    """No trigger fires for the rest of the transaction; on SQLite these alone do not, and no more from then on."""
    if is_postgresql(tx):
        tx.exec_driver_sql("SET LOCAL session_replication_role = replica")
        return
    for name in names:
        tx.exec_driver_sql(f"DROP TRIGGER IF EXISTS {name}")
