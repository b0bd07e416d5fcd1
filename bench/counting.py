"""A command of `loom` whose process counts what it asks of SQLite: `python -m bench.counting FOLDER worker …`.

Without a command it prints what the processes have counted into that folder so far. With `up` all processes of that
Loom count. Connections to Loom's own database are counted at the DB-API, so it does not matter whether statements come
through SQLAlchemy. They never checkpoint: the write-ahead log then holds every page that was written (bench/wal.py).
"""

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from bench import counts
from bench.counts import Counters
from bench.processes import kind_of
from loom_worker.cli import main as command_line
from loom_worker.core.sqlite_driver import sqlite3
from loom_worker.supervisor import specs

DATABASE = "loom.db"
_SYNCHRONOUS = re.compile(r"PRAGMA\s+synchronous\s*=\s*(\w+)", re.IGNORECASE)
_FULL = {"FULL", "2", "EXTRA", "3"}
_CONTROL = {"BEGIN", "COMMIT", "END", "ROLLBACK", "SAVEPOINT", "RELEASE"}


class CountedCursor(sqlite3.Cursor):
    """Counts its statements."""

    connection: "CountedConnection"

    def execute(self, sql: str, *parameters: Any) -> Any:
        with self.connection.watched(sql):
            return super().execute(sql, *parameters)

    def executemany(self, sql: str, rows: Iterable[Any], /) -> Any:
        """Each row counts as a statement."""
        rows = list(rows)
        with self.connection.watched(sql, times=len(rows)):
            return super().executemany(sql, rows)


class CountedConnection(sqlite3.Connection):
    """Counts its transactions; ``counters`` must be set before it is used."""

    counters: Counters
    _is_full = True
    _is_immediate = False
    _changes_at_begin = 0

    def cursor(self, factory: Any = CountedCursor) -> Any:
        return super().cursor(factory)

    def execute(self, sql: str, *parameters: Any) -> Any:
        return self.cursor().execute(sql, *parameters)

    def executemany(self, sql: str, rows: Iterable[Any], /) -> Any:
        return self.cursor().executemany(sql, rows)

    def commit(self) -> None:
        with self.watched("COMMIT"):
            super().commit()

    def rollback(self) -> None:
        with self.watched("ROLLBACK"):
            super().rollback()

    @contextmanager
    def watched(self, sql: str, *, times: int = 1) -> Iterator[None]:
        """Count what is done meanwhile: this statement, so many times."""
        was_open, changes = self.in_transaction, self.total_changes
        verb = first_word(sql)
        try:
            yield
        except sqlite3.OperationalError:
            if verb == "BEGIN":
                self.counters.add(counts.REFUSED)
            raise
        if verb not in _CONTROL:
            self.counters.add(counts.PRAGMAS if verb == "PRAGMA" else counts.STATEMENTS, times)
        if found := _SYNCHRONOUS.match(sql):
            self._is_full = found[1].upper() in _FULL
        if not was_open and self.in_transaction:
            self._changes_at_begin, self._is_immediate = changes, "IMMEDIATE" in sql.upper()
        elif was_open and not self.in_transaction:
            has_changed = verb != "ROLLBACK" and self.total_changes > self._changes_at_begin
            self._ended(has_changed=has_changed, is_immediate=self._is_immediate)
        elif not self.in_transaction and verb not in _CONTROL | {"PRAGMA"}:
            self._ended(has_changed=self.total_changes > changes, is_immediate=False)

    def _ended(self, *, has_changed: bool, is_immediate: bool) -> None:
        if has_changed:
            self.counters.add(counts.WRITES)
            if self._is_full:
                self.counters.add(counts.DURABLE)
        else:
            self.counters.add(counts.EMPTY_WRITES if is_immediate else counts.READS)


def first_word(sql: str) -> str:
    """The verb of a statement, in capitals."""
    return sql.split(None, 1)[0].rstrip(";").upper() if sql.strip() else ""


def counted_connect(plain: Callable[..., Any], counters: Counters) -> Callable[..., Any]:
    """``sqlite3.connect`` that counts what is asked of Loom's database, whatever class the caller wants."""

    def connect(database: Any, *args: Any, **options: Any) -> Any:
        if Path(str(database).partition("?")[0]).name != DATABASE:
            return plain(database, *args, **options)
        wanted = options.pop("factory", sqlite3.Connection)
        made = type(wanted.__name__, (CountedConnection, wanted), {"counters": counters})
        connection = plain(database, *args, factory=made, **options)
        connection._is_full = str(sqlite3.Connection.execute(connection, "PRAGMA synchronous").fetchone()[0]) in _FULL
        sqlite3.Connection.execute(connection, "PRAGMA wal_autocheckpoint=0").fetchall()
        counters.add(counts.OPENED)
        return connection

    return connect


def main(arguments: list[str]) -> None:
    """Become that command, or print the counts."""
    folder = Path(arguments[0]).absolute()
    if not arguments[1:]:
        print(counts.table(counts.read(folder)))
        return
    counters = Counters(folder, kind_of(["loom", *arguments[1:]]))
    sqlite3.connect = counted_connect(sqlite3.connect, counters)
    specs.loom_command = partial(entry, folder)
    command_line.main(args=arguments[1:], prog_name="loom")


def entry(folder: Path) -> tuple[str, ...]:
    """The command line in place of `loom` that counts into a folder."""
    return (sys.executable, "-m", "bench.counting", str(folder))


if __name__ == "__main__":
    main(sys.argv[1:])
