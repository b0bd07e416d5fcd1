"""Sessions that have been there for long: written straight into the database, beside the running Loom."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from loom_worker.core.sqlite_driver import sqlite3
from loom_worker.core.values.ids import new_id, now_ms
from loom_worker.core.values.sessions import NewSession
from loom_worker.store import sessions
from loom_worker.store.database import Database

MESSAGES_A_TURN = 2
"""Of a plain one: the question and the answer."""

Row = dict[str, Any]


def open_database(home: Path) -> Database:
    """Loom's own, as its processes open it."""
    return Database(f"sqlite:///{home / 'loom.db'}", sync="normal")


def make_sessions(home: Path, prefix: str, count: int, *, model: str) -> None:
    """Sessions ``<prefix>-0``, ``<prefix>-1`` … with a model of their own."""
    with closing(open_database(home)) as database, database.write() as tx:
        for n in range(count):
            new = NewSession(id=f"{prefix}-{n}", agent="default", model=model)
            sessions.add(tx, "default", new, now_ms=now_ms())


def lengthen(home: Path, turn_id: str, times: int) -> None:
    """Repeat a finished turn in its session: all its rows again, every text a little different.

    Copies, so that they hold whatever Loom writes for a turn, and as much of it.
    """
    with _writing(home / "loom.db") as tx:
        turn = _rows(tx, "turns", "id", turn_id)[0]
        parts = {table: _rows(tx, table, "turn_id", turn_id) for table in ("steps", "messages", "usage")}
        for n in range(1, times + 1):
            again = new_id("turn_")
            _insert(tx, "turns", {**turn, "id": again, "seq": turn["seq"] + n, "input": f"{n} {turn['input']}"})
            for table, row in ((table, row) for table, rows in parts.items() for row in rows):
                _insert(tx, table, {**row, **_renewed(table, row, n), "turn_id": again})
        tx.execute("UPDATE sessions SET next_seq = next_seq + ? WHERE lane = ?", (times, turn["lane"]))


def _renewed(table: str, row: Row, n: int) -> Row:
    if table == "steps":
        return {}
    renewed: Row = {"n": None}  # the database counts on
    if table == "messages":
        renewed |= {"id": new_id("msg_"), "content": f"{n} {row['content']}"}
    return renewed


@contextmanager
def _writing(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as connection:
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("BEGIN IMMEDIATE")
        yield connection
        connection.execute("COMMIT")


def _rows(tx: sqlite3.Connection, table: str, column: str, value: str) -> list[Row]:
    return [dict(row) for row in tx.execute(f"SELECT * FROM {table} WHERE {column} = ?", (value,))]


def _insert(tx: sqlite3.Connection, table: str, row: Row) -> None:
    names, places = ", ".join(f'"{name}"' for name in row), ", ".join("?" for _ in row)
    tx.execute(f"INSERT INTO {table} ({names}) VALUES ({places})", tuple(row.values()))
