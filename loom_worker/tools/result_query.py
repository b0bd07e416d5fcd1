"""SQL over results: their rows become tables of a SQLite file, which a guarded child process queries."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from loom_worker.backends import sqlite_process
from loom_worker.backends.error_text import hint
from loom_worker.backends.schema import Table
from loom_worker.backends.sqlite_guard import LIMITS, GuardRequest
from loom_worker.blobs.derived import DerivedFiles
from loom_worker.core.errors import ToolFailed
from loom_worker.core.sqlite_driver import codes, sqlite3
from loom_worker.core.values.json import Json
from loom_worker.tools.result_rows import ResultContent

TABLE = "result"
MOST_COLUMNS = 1900
"""SQLite allows a table 2,000 columns."""
ROW_BYTES = LIMITS[codes.SQLITE_LIMIT_LENGTH] * 9 // 10
"""The guard refuses to read a row longer than its limit, so cells of such rows are cut."""
CELL_BYTES = 100_000
QUERY_S = 10.0
MOST_ROWS = 1000
_INTEGER = re.compile(r"-?(0|[1-9]\d{0,17})")
_DECIMAL = re.compile(r"-?(0|[1-9]\d{0,14})\.\d{1,15}")

Cell = str | int | float | bytes | None


def build(file: Path, tables: Mapping[str, ResultContent]) -> None:
    """Write contents as tables into a new SQLite file; its ``user_version`` is the number of cells that were cut.

    Nested values become JSON text. A CSV column becomes numeric if all of its values are numbers.

    Raises:
        ToolFailed: a table has too many columns, or the disk is full.
    """
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        for pragma in ("journal_mode=OFF", "synchronous=OFF", "locking_mode=EXCLUSIVE"):
            connection.execute(f"PRAGMA {pragma}")
        try:
            connection.execute("BEGIN")
            cut = sum(_write(connection, name, content) for name, content in tables.items())
            connection.execute(f"PRAGMA user_version={min(cut, 2**31 - 1)}")
            connection.execute("COMMIT")
        except sqlite3.OperationalError as error:
            raise ToolFailed(f"the rows cannot be prepared for SQL: {error}", "UNAVAILABLE") from error


def ask(file: Path, sql: str, *, most_bytes: int) -> Json:
    """Run a SELECT; return columns, rows, row_count, truncated, and ``note`` if cells were cut before.

    Raises:
        ToolFailed: the statement is refused or fails; for an unknown name the text lists the existing ones.
    """
    request = GuardRequest(
        uri=f"{file.absolute().as_uri()}?mode=ro",
        sql=sql,
        max_rows=MOST_ROWS,
        max_bytes=most_bytes,
        timeout_s=QUERY_S,
        parameters=[],
        seen=None,
    )
    try:
        result = sqlite_process.query(request)
    except ToolFailed as failure:
        if not str(failure).startswith("no such "):
            raise
        raise ToolFailed(hint(str(failure), sql, _tables(file)), failure.code) from failure
    with closing(sqlite3.connect(request["uri"], uri=True)) as connection:
        cut = connection.execute("PRAGMA user_version").fetchone()[0]
    if cut:
        result["note"] = f"{cut} long cells were cut for SQL; get_tool_result has them whole"
    return result


def ask_copy(
    copies: DerivedFiles, ref: str, content: Callable[[], ResultContent], sql: str, *, most_bytes: int
) -> Json:
    """Query one result in the copy from an earlier query, or else in a new one, which is kept if it fits."""
    copy = copies.find(ref)
    if copy is not None:
        return ask(copy, sql, most_bytes=most_bytes)
    with copies.scratch() as scratch:
        build(scratch, {TABLE: content()})
        try:
            return ask(scratch, sql, most_bytes=most_bytes)
        finally:
            copies.adopt(ref, scratch)


def column_names(names: Sequence[str]) -> list[str]:
    """Valid column names: not empty, and unique whatever their case."""
    made: list[str] = []
    seen: set[str] = set()
    for n, name in enumerate(names):
        plain = " ".join(_storable(name).replace("\0", " ").split())[:200] or f"column_{n + 1}"
        unique, number = plain, 2
        while unique.lower() in seen:
            unique, number = f"{plain}_{number}", number + 1
        seen.add(unique.lower())
        made.append(unique)
    return made


def _write(connection: sqlite3.Connection, name: str, content: ResultContent) -> int:
    """Write one table; return how many cells were cut."""
    if len(content.columns) > MOST_COLUMNS:
        text = f"{len(content.columns)} columns are too many for SQL: read them with get_tool_result"
        raise ToolFailed(text, "INVALID_INPUT")
    names, is_csv = column_names(content.columns), content.source == "csv"
    types = [_type([row[at] for row in content.rows]) if is_csv else "" for at in range(len(names))]
    columns = ", ".join(f"{_quoted(column)} {kind}" for column, kind in zip(names, types, strict=True))
    connection.execute(f"CREATE TABLE {_quoted(name)} ({columns})")
    cut = 0

    def cells() -> Iterator[list[Cell]]:
        nonlocal cut
        for row in content.rows:
            made, shortened = _fitted([_cell(value) for value in row])
            cut += shortened
            yield [None if kind and cell == "" else cell for cell, kind in zip(made, types, strict=True)]

    marks = ", ".join("?" * len(names))
    connection.executemany(f"INSERT INTO {_quoted(name)} VALUES ({marks})", cells())
    return cut


def _type(values: Sequence[object]) -> str:
    """Of a CSV column: INTEGER or REAL if every value is written as one, so that ``007`` stays text."""
    given = [value for value in values if value]
    if not given:
        return ""
    if all(isinstance(value, str) and _INTEGER.fullmatch(value) for value in given):
        return "INTEGER"
    is_number = all(isinstance(v, str) and (_INTEGER.fullmatch(v) or _DECIMAL.fullmatch(v)) for v in given)
    return "REAL" if is_number else ""


def _cell(value: object) -> Cell:
    match value:
        case None | float():
            return value
        case bool():
            return int(value)
        case int():
            return value if -(2**63) <= value < 2**63 else str(value)
        case str():
            return _storable(value)
        case _:
            return _storable(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _storable(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _fitted(cells: list[Cell]) -> tuple[list[Cell], int]:
    """A row that the guard can read, and how many of its cells were cut for it."""
    sizes = [len(cell.encode()) if isinstance(cell, str) else 9 for cell in cells]
    if sum(sizes) <= ROW_BYTES and max(sizes) <= CELL_BYTES:
        return cells, 0
    most = min(CELL_BYTES, ROW_BYTES // len(cells))
    long = [isinstance(cell, str) and size > most for cell, size in zip(cells, sizes, strict=True)]
    cut = [
        cell.encode()[:most].decode("utf-8", "ignore") if is_long and isinstance(cell, str) else cell
        for cell, is_long in zip(cells, long, strict=True)
    ]
    return cut, sum(long)


def _tables(file: Path) -> tuple[Table, ...]:
    with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        columns = {name: connection.execute(f"PRAGMA table_info({_quoted(name)})").fetchall() for name in names}
    return tuple(Table(name, tuple((row[1], row[2]) for row in rows), (), ()) for name, rows in columns.items())


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
