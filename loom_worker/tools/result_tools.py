"""The tools by which an agent reads a stored result: page by page, or by a SELECT over its rows in a SQLite file."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from loom_worker.backends.error_text import hint
from loom_worker.backends.schema import Table
from loom_worker.backends.sql import run_guarded
from loom_worker.backends.sqlite_guard import LIMITS, GuardRequest
from loom_worker.blobs.derived import DerivedFiles
from loom_worker.core.errors import ToolFailed
from loom_worker.core.sqlite_driver import codes, sqlite3
from loom_worker.core.text import longest
from loom_worker.core.values.chat import ToolSpec, object_schema
from loom_worker.core.values.json import Json
from loom_worker.core.values.tools import Caller, Tool
from loom_worker.tools.references import References
from loom_worker.tools.result_rows import ResultContent, at, content_of, parsed, pointer, type_of

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
        result = run_guarded(request)
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
    """The type of a CSV column: INTEGER or REAL if every value is written as one, so that ``007`` stays text."""
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


PAGE_BYTES = 12 * 1024
"""Bytes of an answer: less than what becomes a reference, or reading one result would store another."""
USUAL_ROWS = 50
ELIDED_CHARS = 500
MOST_REFS = 5
_FARTHEST = 1_000_000_000
_NAME = "[A-Za-z][A-Za-z0-9_]{0,39}"
"""Name of the table for a reference."""
_RESERVED = "sqlite_"
"""The prefix of SQLite's own tables, in any case."""


@dataclass(frozen=True, slots=True)
class ResultParts:
    """What the tools work with."""

    references: References
    page_bytes: int = PAGE_BYTES


def result_tools(references: References, *, reference_bytes: int) -> tuple[Tool, ...]:
    """``get_tool_result`` and ``query_tool_result``.

    Args:
        reference_bytes: the size from which results become references; answers stay well below it.
    """
    parts = ResultParts(references, min(PAGE_BYTES, reference_bytes * 3 // 4))

    def get(arguments: Json, caller: Caller) -> str:
        offset, limit = int(arguments.get("offset", 0)), int(arguments.get("limit", USUAL_ROWS))
        path = arguments.get("path")
        content = _content(parts, arguments["ref"], caller, path)
        return page(content, offset=offset, limit=limit, most_bytes=parts.page_bytes, base=pointer(path))

    def query(arguments: Json, caller: Caller) -> str:
        return _compact(_queried(parts, arguments, caller))

    # Neither is bounded: reading and unpacking 10 MB takes a while.
    return (Tool(_GET, get, occasion="reference"), Tool(_QUERY, query, occasion="reference"))


def page(content: ResultContent, *, offset: int, limit: int, most_bytes: int, base: str = "") -> str:
    """Rows, items, entries or lines from an offset on, as JSON text; as many as are asked for and fit.

    Text with a line that is too long by itself is returned by characters.

    Args:
        most_bytes: of the answer, in UTF-8.
        base: the path of the content, for the paths of what is too long to be shown.

    Raises:
        ToolFailed: the offset is past the end, or a row has too many cells.
    """
    if content.kind == "lines" and any(len(str(row[0])) > most_bytes // 8 for row in content.rows):
        return _characters(content.text, offset=offset, most_bytes=most_bytes)
    total = len(content.rows)
    if offset and offset >= total:
        raise ToolFailed(f"offset {offset} is past the end: there are {total} {content.kind}", "INVALID_INPUT")
    shown: list[object] = []
    room = most_bytes - len(_envelope(content, [], offset).encode()) - 32
    for n, row in enumerate(content.rows[offset : offset + limit], offset):
        cells = _shown(content, row)
        if _bytes(cells) > room and not shown:
            cells = _shown(content, _elided(content, base, n, most_chars=room // 4))
        room -= _bytes(cells)
        if room < 0:
            break
        shown.append(cells)
    if total and not shown:
        where = content.place(base, offset)
        advice = f"read it alone: path {where}" if where else "name the columns you need in query_tool_result"
        raise ToolFailed(f"one of the {content.kind} is too large; {advice}", "INVALID_INPUT")
    return _envelope(content, shown, offset)


def _queried(parts: ResultParts, arguments: Json, caller: Caller) -> Json:
    ref, sql, path = arguments["ref"], arguments["sql"], arguments.get("path")
    others: dict[str, str] = arguments.get("refs") or {}
    copies, most_bytes = parts.references.stores.copies, parts.page_bytes
    reference = parts.references.find(ref, caller)

    def content() -> ResultContent:
        return _content(parts, ref, caller, path)

    try:
        if not (others or path):
            return ask_copy(copies, reference.id, content, sql, most_bytes=most_bytes)
        with copies.scratch() as scratch:
            build(scratch, {TABLE: content(), **_others(parts, others, caller)})
            return ask(scratch, sql, most_bytes=most_bytes)
    except OSError as error:
        raise ToolFailed(f"the rows cannot be prepared for SQL: {error.strerror}", "UNAVAILABLE") from error


def _others(parts: ResultParts, refs: Mapping[str, str], caller: Caller) -> dict[str, ResultContent]:
    for name in refs:
        if not re.fullmatch(_NAME, name) or name.lower().startswith(_RESERVED):
            text = f"refs: {name[:60]!r} cannot name a table: a letter, then at most 39 letters, digits and underscores"
            raise ToolFailed(f"{text}; not beginning with {_RESERVED}", "INVALID_INPUT")
    names = [TABLE, *(name.lower() for name in refs)]
    if len(set(names)) < len(names):
        raise ToolFailed(f"refs: each needs a name of its own, other than {TABLE}", "INVALID_INPUT")
    return {name: _content(parts, ref, caller, None) for name, ref in refs.items()}


def _content(parts: ResultParts, ref: str, caller: Caller, path: str | None) -> ResultContent:
    reference, data = parts.references.read(ref, caller)
    value = parsed(data.decode("utf-8", "replace"), reference.content_type)
    return content_of(at(value, path), "" if path else reference.content_type)


def _shown(content: ResultContent, row: Sequence[object]) -> object:
    return row[0] if content.kind in ("items", "lines") else list(row)


def _elided(content: ResultContent, base: str, n: int, *, most_chars: int) -> list[object]:
    row = content.rows[n]
    most = max(16, min(ELIDED_CHARS, most_chars // len(row)))

    def cut(value: object, column: int) -> str:
        where = content.place(base, n, column)
        whole = f"; path {where}" if where else ""
        if isinstance(value, str):
            return f"{value[:most]}… ({len(value)} characters{whole})"
        return f"({type_of(value)}{whole})"

    return [cell if len(_compact(cell)) <= most else cut(cell, at) for at, cell in enumerate(row)]


def _bytes(value: object) -> int:
    return len(_compact(value).encode()) + 1


def _envelope(content: ResultContent, shown: list[object], offset: int) -> str:
    total, following = len(content.rows), offset + len(shown)
    columns: Json = {"columns": list(content.columns)} if content.kind == "rows" else {}
    next_offset = following if following < total else None
    return _compact({**columns, content.kind: shown, "offset": offset, "total": total, "next_offset": next_offset})


def _characters(text: str, *, offset: int, most_bytes: int) -> str:
    total = len(text)
    if offset >= total:
        raise ToolFailed(f"offset {offset} is past the end: there are {total} characters", "INVALID_INPUT")

    def answer(following: int) -> str:
        found: Json = {"text": text[offset:following], "unit": "characters", "offset": offset, "total": total}
        return _compact({**found, "next_offset": following if following < total else None})

    # How much fits depends on how much of the text must be escaped; at least one character is returned.
    most = min(most_bytes, total - offset)
    return answer(offset + max(1, longest(most, lambda chars: len(answer(offset + chars).encode()) <= most_bytes)))


def _compact(value: object) -> str:
    """JSON that every store accepts: a lone surrogate, which a tool's JSON may contain, becomes a question mark."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


_REF: Json = {"type": "string", "description": "the reference, ref_ and 32 characters"}
_PATH: Json = {
    "type": "string",
    "description": "a place in a JSON result, such as /data/0/items or data[0].items; usually left out",
}
_GET = ToolSpec(
    name="get_tool_result",
    description=(
        "Read a large result stored under a reference (ref_…), a page at a time: rows, items, entries or lines from "
        "offset on. The answer has the total and the next_offset. To count, sum, sort or filter use query_tool_result."
    ),
    input_schema=object_schema(
        "ref",
        ref=_REF,
        offset={"type": "integer", "minimum": 0, "maximum": _FARTHEST, "default": 0},
        limit={"type": "integer", "minimum": 1, "maximum": MOST_ROWS, "default": USUAL_ROWS},
        path=_PATH,
    ),
)
_QUERY = ToolSpec(
    name="query_tool_result",
    description=(
        "Ask a large result stored under a reference (ref_…) by one SQLite SELECT over the table `result`: rows under "
        "their own column names, items of an array in the column value, entries of an object in key and value, lines "
        "of text in line; nested values are JSON text (json_extract)."
    ),
    input_schema=object_schema(
        "ref",
        "sql",
        ref=_REF,
        sql={"type": "string", "maxLength": 20_000, "description": "SELECT … FROM result …"},
        path=_PATH,
        refs={
            "type": "object",
            "description": "further references, by the names for their tables",
            "additionalProperties": {"type": "string"},
            "propertyNames": {"pattern": f"^{_NAME}$"},
            "maxProperties": MOST_REFS,
        },
    ),
)
