"""Both ends of a move, on connections of their own: rows in order of their keys, out of one database and into another.

Rows are tuples of what both drivers know, in order of the table's columns: JSON as its text, booleans as 0 and 1.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from typing import Any

from sqlalchemy import JSON, Boolean, Column, Float, Integer, LargeBinary, Table

from loom_worker.core.errors import LoomError, Unavailable
from loom_worker.core.sqlite_driver import sqlite3
from loom_worker.core.text import storable
from loom_worker.core.values.json import mended
from loom_worker.core.variables import is_server, without_password
from loom_worker.store.engines.engine import BUSY_TIMEOUT_S, HAS_MOVED
from loom_worker.store.engines.sqlite_file import database_path, file_error, into_wal

Row = tuple[Any, ...]
Group = list[Row]

GROUP = 100
"""Rows that are held at a time."""
GROUPS = 50
"""As many of them are written in one transaction."""

_ODD = ("\0", "NaN", "Infinity", "\\u0000", "\\ud")
_FILL_INDEX = (
    "INSERT INTO messages_fts5 (rowid, lane, said, grams, tools) "
    "SELECT n, lane, said, grams, tools FROM messages_searched ORDER BY n"
)


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The rows of a table whose keys lie between two; None: no bound."""

    after: Row | None = None
    until: Row | None = None
    """The last one."""


ALL = KeyRange()


class MoveEnd:
    """One of the two databases. What both do alike stands here; errors are the driver's, see ``opened``."""

    writers = 1
    """Connections that can write to it at a time with a gain."""
    parameter = "?"
    begin = "BEGIN IMMEDIATE"

    def __init__(self, raw: Any) -> None:
        """Take a connection that begins no transaction by itself."""
        self._raw = raw

    def all(self, query: str, *values: Any) -> list[Row]:
        """Every row that a query finds."""
        found: list[Row] = self._raw.execute(query, *((values,) if values else ())).fetchall()
        return found

    def run(self, statement: str) -> None:
        """Run a statement as it stands."""
        self._raw.execute(statement)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commits to the disk at the end of the block."""
        self.run(self.begin)
        try:
            yield
        except BaseException:
            with suppress(Exception):  # what went wrong first is told
                self.run("ROLLBACK")
            raise
        self.run("COMMIT")

    def mark(self, text: str) -> None:
        """Write a text in the place of the schema's version."""
        self._raw.execute(f"UPDATE loom_version SET version_num = {self.parameter}", (text,))

    def first_filled(self, tables: Sequence[Table]) -> str | None:
        """The name of a table that has a row."""
        return next((each.name for each in tables if self.all(f'SELECT 1 FROM "{each.name}" LIMIT 1')), None)

    def last_key(self, table: Table, part: KeyRange) -> Row | None:
        """The key of the last row in a part of it; where the part begins if there is none."""
        where, values = self._within(table, part)
        order = _listed(table.primary_key, " DESC")
        query = f'SELECT {_listed(table.primary_key)} FROM "{table.name}" {where} ORDER BY {order} LIMIT 1'
        found = self.all(query, *values)
        return found[0] if found else part.after

    def parts(self, table: Table, most: int) -> list[KeyRange]:
        """A table as so many parts, by its keys, if these are numbers; else as one."""
        keys = list(table.primary_key)
        if most == 1 or len(keys) > 1 or not isinstance(keys[0].type, Integer):
            return [ALL]
        low, high = self.all(f'SELECT min("{keys[0].name}"), max("{keys[0].name}") FROM "{table.name}"')[0]
        if low is None:
            return [ALL]
        ends = [None, *((low + (high - low) * n // most,) for n in range(1, most)), None]
        return [KeyRange(after, until) for after, until in pairwise(ends)]

    def put_aside(self) -> None:
        """Drop what would cost time, or change other rows, while rows come; ``bring_back`` makes it again."""
        self.run("CREATE TABLE loom_later (n INTEGER PRIMARY KEY, statement TEXT NOT NULL)")
        for n, (drop, make) in enumerate(self._belongings()):
            self._raw.execute(f"INSERT INTO loom_later VALUES ({self.parameter}, {self.parameter})", (n, make))
            self.run(drop)

    def bring_back(self) -> None:
        """Make what was put aside, one after the other; each is made once, however often this is cut off."""
        while found := self.all("SELECT n, statement FROM loom_later ORDER BY n LIMIT 1"):
            with self.transaction():
                self.run(found[0][1])
                self.run(f"DELETE FROM loom_later WHERE n = {found[0][0]}")

    def rows(self, table: Table, part: KeyRange) -> Iterator[Group]:
        """The rows of a part of it, in order of their keys."""
        columns = ", ".join(self._read(column) for column in table.columns)
        where, values = self._within(table, part)
        query = f'SELECT {columns} FROM "{table.name}" {where} ORDER BY {_listed(table.primary_key)}'
        return self._streamed(query, values, table)

    def add(self, table: Table, groups: Iterator[Group]) -> int:
        """Append rows, some thousands in a transaction; return how many."""
        added = 0
        for first in groups:
            with self.transaction():
                added += self._write(table, chain((first,), islice(groups, GROUPS - 1)))
        return added

    def fitted(self, table: Table, groups: Iterator[Group]) -> Iterator[tuple[Group, int]]:
        """Rows as this database can hold them, and in how many values they differ from what they were."""
        return ((group, 0) for group in groups)

    def freeze(self, tables: Sequence[Table]) -> None:
        """Have every change of a row refused from the end of this transaction on, whoever tries."""
        raise NotImplementedError

    def thaw(self, tables: Sequence[Table]) -> None:
        """Take ``freeze`` back."""
        raise NotImplementedError

    def finish(self, tables: Sequence[Table]) -> None:
        """Count on from the last numbers, and whatever else a database filled at once needs."""

    def _within(self, table: Table, part: KeyRange) -> tuple[str, Row]:
        key = f"({_listed(table.primary_key)})"
        given = [(sign, end) for sign, end in ((">", part.after), ("<=", part.until)) if end is not None]
        tests = [f"{key} {sign} ({', '.join(self.parameter for _ in end)})" for sign, end in given]
        return f"WHERE {' AND '.join(tests)}" if tests else "", tuple(chain.from_iterable(end for _, end in given))

    def _belongings(self) -> list[tuple[str, str]]:
        raise NotImplementedError

    def _read(self, column: "Column[Any]") -> str:
        return f'"{column.name}"'

    def _streamed(self, query: str, values: Row, table: Table) -> Iterator[Group]:
        raise NotImplementedError

    def _write(self, table: Table, groups: Iterator[Group]) -> int:
        raise NotImplementedError


class SqliteEnd(MoveEnd):
    """A file."""

    def freeze(self, tables: Sequence[Table]) -> None:
        for table in tables:
            for act in ("INSERT", "UPDATE", "DELETE"):
                refuse = f"BEGIN SELECT RAISE(ABORT, '{HAS_MOVED}'); END"
                self.run(f'CREATE TRIGGER moved_{table.name}_{act} BEFORE {act} ON "{table.name}" {refuse}')

    def thaw(self, tables: Sequence[Table]) -> None:
        for table in tables:
            for act in ("INSERT", "UPDATE", "DELETE"):
                self.run(f"DROP TRIGGER moved_{table.name}_{act}")

    def _belongings(self) -> list[tuple[str, str]]:
        query = "SELECT type, name, sql FROM sqlite_schema WHERE type IN ('index', 'trigger') AND sql IS NOT NULL"
        found = [(f'DROP {kind} "{name}"', make) for kind, name, make in self.all(f"{query} ORDER BY type, name")]
        return [("SELECT 1", _FILL_INDEX), *found]

    def _streamed(self, query: str, values: Row, table: Table) -> Iterator[Group]:
        cursor = self._raw.execute(query, values)
        return iter(lambda: cursor.fetchmany(GROUP), [])

    def _write(self, table: Table, groups: Iterator[Group]) -> int:
        marks = ", ".join(self.parameter for _ in table.columns)
        statement = f'INSERT INTO "{table.name}" ({_listed(table.columns)}) VALUES ({marks})'
        return sum(self._raw.executemany(statement, group).rowcount for group in groups)


class PostgresqlEnd(MoveEnd):
    """A database of a server."""

    writers = 2  # most of the work is the server's: a process of it for each connection makes words of texts
    parameter = "%s"
    begin = "BEGIN"

    def freeze(self, tables: Sequence[Table]) -> None:
        self.run("SELECT loom_begin('whole', '', '', true, 10000)")
        self.run(
            "CREATE FUNCTION loom_has_moved() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN RAISE EXCEPTION '{HAS_MOVED}' USING ERRCODE = 'LM001'; END $$"
        )
        for table in tables:
            self.run(
                f'CREATE TRIGGER loom_has_moved BEFORE INSERT OR UPDATE OR DELETE ON "{table.name}" '
                "FOR EACH STATEMENT EXECUTE FUNCTION loom_has_moved()"
            )

    def thaw(self, tables: Sequence[Table]) -> None:
        self.run("DROP FUNCTION loom_has_moved() CASCADE")

    def mark(self, text: str) -> None:
        self.run("ALTER TABLE loom_version ALTER COLUMN version_num TYPE text")
        super().mark(text)

    def fitted(self, table: Table, groups: Iterator[Group]) -> Iterator[tuple[Group, int]]:
        is_json = [isinstance(column.type, JSON) for column in table.columns]
        for group in groups:
            if any(map(_is_odd, group)):
                rows = [tuple(map(_mended, row, is_json)) for row in group]
                yield rows, sum(one != other for one, other in zip(chain(*group), chain(*rows), strict=True))
            else:
                yield group, 0

    def finish(self, tables: Sequence[Table]) -> None:
        for table, column in self.all(_COUNTING):
            sequence = f"pg_get_serial_sequence('{table}', '{column}')"
            self.run(f'SELECT setval({sequence}, max("{column}")) FROM "{table}" HAVING count(*) > 0')
        if self.all("SELECT to_regproc('loom_embed_rest')") != [(None,)]:
            self.run("SELECT loom_embed_rest()")
        self.run("ANALYZE")

    def _belongings(self) -> list[tuple[str, str]]:
        return [(drop, make) for query in _BELONGINGS for drop, make in self.all(query)]

    def _read(self, column: "Column[Any]") -> str:
        # No file can tell -0.0 from 0.0.
        cast = {JSON: "::text", Boolean: "::int", Float: " + 0"}.get(_kind(column, JSON, Boolean, Float), "")
        return f'"{column.name}"{cast}'

    def _streamed(self, query: str, values: Row, table: Table) -> Iterator[Group]:
        names = {JSON: "text", Float: "float8", LargeBinary: "bytea", int: "int8", bool: "int8"}
        types = [
            names.get(_kind(column, JSON, Float, LargeBinary) or column.type.python_type, "text")
            for column in table.columns
        ]
        with self._raw.cursor().copy(f"COPY ({query}) TO STDOUT", values or None) as copy:
            copy.set_types(types)
            rows = copy.rows()
            yield from iter(lambda: list(islice(rows, GROUP)), [])

    def _write(self, table: Table, groups: Iterator[Group]) -> int:
        self.run("SET LOCAL synchronous_commit = off")
        cursor = self._raw.cursor()
        with cursor.copy(f'COPY "{table.name}" ({_listed(table.columns)}) FROM STDIN') as copy:
            for row in chain.from_iterable(groups):
                copy.write_row(row)
        written: int = cursor.rowcount
        return written


# What keeps rows apart from each other, points to them or acts on them: foreign keys last, for they need the keys.
_OURS = "= current_schema()::regnamespace"
_COUNTING = (
    "SELECT table_name, column_name FROM information_schema.columns "
    "WHERE is_identity = 'YES' AND table_schema = current_schema()"
)
_BELONGINGS = (
    "SELECT format('DROP TRIGGER %I ON %s', tgname, tgrelid::regclass), pg_get_triggerdef(t.oid) FROM pg_trigger t "
    f"JOIN pg_class c ON c.oid = tgrelid WHERE NOT tgisinternal AND relnamespace {_OURS}",
    "SELECT format('DROP INDEX %s', indexrelid::regclass), pg_get_indexdef(indexrelid) FROM pg_index "
    f"JOIN pg_class c ON c.oid = indexrelid WHERE relnamespace {_OURS} "
    "AND NOT EXISTS (SELECT 1 FROM pg_constraint WHERE conindid = indexrelid)",
    "SELECT format('ALTER TABLE %s DROP CONSTRAINT %I', conrelid::regclass, conname), "
    "format('ALTER TABLE %s ADD CONSTRAINT %I %s', conrelid::regclass, conname, pg_get_constraintdef(oid)) "
    f"FROM pg_constraint WHERE contype = 'f' AND connamespace {_OURS}",
)


@contextmanager
def opened(url: str) -> Iterator[MoveEnd]:
    """One end, for as long as the ``with`` lasts.

    Raises:
        LoomError: the database refused; the text names it and says why.
    """
    with (_server if is_server(url) else _file)(url) as end:
        yield end


@contextmanager
def _file(url: str) -> Iterator[MoveEnd]:
    file = database_path(url)
    try:
        raw = sqlite3.connect(file, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
        try:
            into_wal(raw)
            for pragma in ("synchronous=FULL", "temp_store=MEMORY", "cache_size=-65536"):
                raw.execute(f"PRAGMA {pragma}").fetchall()
            yield SqliteEnd(raw)
        finally:
            raw.close()
    except sqlite3.Error as error:
        raise file_error(error, file) from error


@contextmanager
def _server(url: str) -> Iterator[MoveEnd]:
    import psycopg
    from psycopg.types.string import StrDumper

    from loom_worker.store.engines import postgresql_server as server

    try:
        with server.connect(url) as raw:
            raw.adapters.register_dumper(str, StrDumper)  # values were mended before, and faster
            raw.execute("SET maintenance_work_mem = '256MB'")
            yield PostgresqlEnd(raw)
    except psycopg.Error as error:
        failure = server.failure_of(error)
        text = failure.text if failure else f"refused (SQLSTATE {error.sqlstate}, table {error.diag.table_name or '?'})"
        raise (Unavailable if failure else LoomError)(f"{without_password(url)} {text}") from error


def _listed(columns: Any, behind: str = "") -> str:
    return ", ".join(f'"{column.name}"{behind}' for column in columns)


def _kind(column: "Column[Any]", *kinds: type) -> Any:
    return next((kind for kind in kinds if isinstance(column.type, kind)), None)


def _is_odd(row: Row) -> bool:
    """True if a text in it may be one that PostgreSQL cannot hold, or cannot search."""
    return any(type(value) is str and any(sign in value for sign in _ODD) for value in row)


def _mended(value: Any, is_json: bool) -> Any:
    if type(value) is not str:
        return value
    if not is_json:
        return storable(value)
    known = json.loads(value)
    clean = mended(known)
    return value if clean == known else json.dumps(clean)
