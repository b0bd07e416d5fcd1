"""The content of a result (rows with columns, items, entries of an object, lines of text) and its preview. Pure."""

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal, cast

from loom_worker.core.errors import ToolFailed
from loom_worker.core.text import longest, short
from loom_worker.core.values.json import Json, pointer_name, pointer_step

Kind = Literal["rows", "items", "entries", "lines"]
Source = Literal["table", "objects", "arrays", "json", "value", "csv", "text"]
"""table: ``{"columns": […], "rows": [[…]]}``; objects, arrays: an array of these; json: another array
or object; value: a number and the like."""
SNIFFED_ROWS = 20
"""Rows of a text that must look like CSV before the rest is tried."""
DELIMITERS = ",\t;|"
MOST_PATH_CHARS = 1000
MOST_DEPTH = 100
"""Depth of nested arrays and objects; deeper results are read as text."""
MOST_CELLS = 5_000_000
"""Cells of a table. A few objects with many keys among many with few would have far more cells than values."""
_INDEX = re.compile(r"\[(-?\d{1,9})\]")
_NUMBER = re.compile(r"\d{1,9}")


@dataclass(frozen=True, slots=True)
class ResultContent:
    """What a result, or a place in it, contains."""

    kind: Kind
    columns: tuple[str, ...]
    """Columns of the rows; "value" for items, "key" and "value" for entries, "line" for lines."""
    rows: Sequence[Sequence[object]]
    """Every row has as many cells as there are columns."""
    source: Source
    text: str = ""
    """Where there are lines: the text itself."""

    def place(self, base: str, row: int, column: int | None = None) -> str | None:
        """The path of a row, or of a cell of it, in the JSON value; None in text.

        Args:
            base: the path of the content itself, as ``pointer`` writes it.
        """
        match self.source:
            case "table":
                parts: list[object] = ["rows", row, column]
            case "arrays":
                parts = [row, column]
            case "objects":
                parts = [row, None if column is None else self.columns[column]]
            case "json":
                parts = [self.rows[row][0] if self.kind == "entries" else row]
            case _:
                return None
        return base + _pointed(str(part) for part in parts if part is not None)


def parsed(text: str, content_type: str) -> object:
    """The JSON value of a result, or the text itself if it is not JSON."""
    if content_type != "application/json" and text.lstrip()[:1] not in ("{", "["):
        return text
    try:
        value = json.loads(text, parse_constant=str)  # NaN is not JSON: it stays as it was written
    except (ValueError, RecursionError):
        return text
    # Deep nesting that could be read could perhaps not be written again: both recurse, from different depths.
    level = [value] if isinstance(value, list | dict) else []
    for _ in range(MOST_DEPTH):
        inside = chain.from_iterable(each.values() if isinstance(each, dict) else each for each in level)
        level = [each for each in inside if type(each) is dict or type(each) is list]
        if not level:
            return value
    return text


def content_of(value: object, content_type: str) -> ResultContent:
    """What a parsed result contains; text that looks like a table is one."""
    match value:
        case str():
            lines = ResultContent("lines", ("line",), [(line,) for line in value.splitlines()], "text", value)
            return _table_of_text(value, content_type) or lines
        case {"columns": list(columns), "rows": list(rows)} if (
            columns
            and all(isinstance(name, str) for name in columns)
            and all(isinstance(row, list) and len(row) <= len(columns) for row in rows)
        ):
            return _table(columns, rows, "table") or _items(rows)
        case list():
            return _of_array(value)
        case dict():
            return ResultContent("entries", ("key", "value"), list(value.items()), "json")
        case _:
            return ResultContent("items", ("value",), [(value,)], "value")


def at(value: object, path: str | None) -> object:
    """The value at a path: ``/data/0/name`` (JSON pointer), or ``data[0].name``.

    Raises:
        ToolFailed: there is no such place; the text lists what there is.
    """
    walked = ""
    for part in _parts(path or ""):
        value = _step(value, part, walked or "the result")
        walked = f"{walked}/{part}"
    return value


def pointer(path: str | None) -> str:
    """A path in either form as a JSON pointer; empty for the whole."""
    return _pointed(_parts(path or ""))


def _pointed(parts: Iterable[str]) -> str:
    return "".join(f"/{pointer_step(part)}" for part in parts)


def _parts(path: str) -> list[str]:
    if len(path) > MOST_PATH_CHARS:
        raise ToolFailed(f"the path is longer than {MOST_PATH_CHARS} characters", "INVALID_INPUT")
    if path.startswith("/"):
        return [*map(pointer_name, path[1:].split("/"))]
    dotted = _INDEX.sub(r".\1", path.removeprefix("$")).strip(".")
    return dotted.split(".") if dotted else []


def _step(value: object, part: str, where: str) -> object:
    match value:
        case dict():
            if part in value:
                return value[part]
            keys = ", ".join(str(key)[:40] for key in list(value)[:20])
            raise ToolFailed(f"{where} has no {part[:40]!r}; its keys: {keys}", "INVALID_INPUT")
        case list():
            if _NUMBER.fullmatch(part) and int(part) < len(value):
                return value[int(part)]
            size = f"has {len(value)} items, 0 to {len(value) - 1}" if value else "is an empty array"
            raise ToolFailed(f"{where} {size}: no {part[:40]!r}", "INVALID_INPUT")
        case str() if where == "the result":
            raise ToolFailed("the result is text, not JSON: leave the path out", "INVALID_INPUT")
        case _:
            raise ToolFailed(f"{where} is {type_of(value)}: nothing is in it", "INVALID_INPUT")


def type_of(value: object) -> str:
    """The JSON name of a value's type."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return f"array of {len(value)}"
        case _:
            return "object"


def _of_array(items: list[object]) -> ResultContent:
    if items and all(isinstance(item, dict) for item in items):
        objects = cast(list[Json], items)
        columns = list(dict.fromkeys(key for item in objects for key in item))
        if columns and len(columns) * len(objects) <= MOST_CELLS:
            rows = [tuple(item.get(key) for key in columns) for item in objects]
            return ResultContent("rows", tuple(columns), rows, "objects")
    elif items and all(isinstance(item, list) and item for item in items):
        arrays = cast(list[list[object]], items)
        columns = [f"column_{n + 1}" for n in range(max(map(len, arrays)))]
        return _table(columns, arrays, "arrays") or _items(items)
    return _items(items)


def _table(columns: list[str], rows: Sequence[Sequence[object]], source: Source) -> ResultContent | None:
    """Rows, short ones filled up; None if that makes too many cells."""
    width = len(columns)
    if width * len(rows) > MOST_CELLS:
        return None
    if any(len(row) != width for row in rows):
        rows = [[*row, *[None] * (width - len(row))] for row in rows]
    return ResultContent("rows", tuple(columns), rows, source)


def _items(items: list[object]) -> ResultContent:
    return ResultContent("items", ("value",), [(item,) for item in items], "json")


def _table_of_text(text: str, content_type: str) -> ResultContent | None:
    is_declared = content_type.startswith("text/csv")
    head = text[:100_000].splitlines()[: SNIFFED_ROWS + 1]
    if is_declared:
        delimiter = max(DELIMITERS, key=head[0].count) if head else None
    else:
        delimiter = next((each for each in DELIMITERS if _is_csv(head, each)), None)
    if delimiter is None:
        return None
    try:
        header, *rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=not is_declared)
    except (csv.Error, ValueError):  # a quote that is never closed, a cell over 128 KiB, or nothing at all
        return None
    rows = [row for row in rows if row]
    width = max(map(len, [header, *rows]))
    if width > len(header) and not is_declared:
        return None
    columns = [name.strip().removeprefix("\ufeff") for name in header]
    columns += [f"column_{n + 1}" for n in range(len(header), width)]
    return _table(columns, rows, "csv")


def _is_csv(head: Sequence[str], delimiter: str) -> bool:
    """True if the first line has column names and each of the others as many cells."""
    try:
        rows = list(csv.reader(head, delimiter=delimiter, strict=True))
    except csv.Error:
        return False
    if len(rows) < 3 or len(rows[0]) < 2:
        return False
    names = [name.strip() for name in rows[0]]
    is_header = len(set(names)) == len(names) and not any(name == "" or name[0].isdigit() for name in names)
    return is_header and all(len(row) == len(names) for row in rows)


Count = Callable[[str], int]

MOST_TOKENS = 82
"""Tokens of a whole preview."""
NAME_CHARS, CELL_CHARS, LINE_CHARS = 40, 60, 300
COLUMNS_KEPT = 50
"""Names in a reference's metadata."""
_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def preview(ref: str, content: ResultContent, *, size_bytes: int, count: Count) -> str:
    """Less than 100 tokens: reference, shape and size, columns, and the first rows that fit.

    If the first line alone is too long for the counter, the preview is only that line.
    """

    def fits(text: str) -> bool:
        return count(text) <= MOST_TOKENS

    text = f"[Large dataset stored: {ref}]"
    if fits(headed := f"{text}\n{shape(content)}, {size(size_bytes)}"):
        text = headed
    names = _names(content)
    shown = longest(min(len(names), 100), lambda number: fits(text + _listed(names, number)))
    text += _listed(names, shown) if shown else ""
    lines = [_line(row, content) for row in content.rows[:20]]
    kept = longest(len(lines), lambda number: fits("\n".join([text, *lines[:number]])))
    text = "\n".join([text, *lines[:kept]])
    if kept == len(lines):
        return text
    chars = longest(len(lines[kept]), lambda end: fits(f"{text}\n{lines[kept][:end]}…"))
    return f"{text}\n{lines[kept][:chars]}…" if chars >= 10 else text


def shape(content: ResultContent) -> str:
    """How much there is, in words, such as ``300 rows x 5 columns``."""
    count = len(content.rows)
    match content.kind:
        case "rows":
            return f"{count:,} rows x {len(content.columns):,} columns"
        case "lines":
            lines = "line" if count == 1 else "lines"
            return f"{count:,} {lines} of text, {len(content.text):,} characters"
        case "entries":
            return f"object with {count:,} keys"
        case _:
            return f"array of {count:,} items"


def shape_json(content: ResultContent) -> Json:
    """The shape as values, for a reference's metadata."""
    found: Json = {"kind": content.kind, "rows": len(content.rows)}
    if content.kind == "rows":
        found["columns"] = [_clean(name)[:NAME_CHARS] for name in content.columns[:COLUMNS_KEPT]]
        found["column_count"] = len(content.columns)
    if content.kind == "lines":
        found["characters"] = len(content.text)
    return found


def size(size_bytes: int) -> str:
    """Bytes for people: ``1.3 MB``."""
    for unit, step in (("MB", 1_000_000), ("KB", 1_000)):
        if size_bytes >= step:
            return f"{size_bytes / step:.1f} {unit}"
    return f"{size_bytes} bytes"


def shortened(text: str, *, most_bytes: int) -> str:
    """What stands in the conversation if a large result cannot be stored: its beginning, and why it is cut."""
    data = text.encode("utf-8", "replace")
    warning = (
        f"[Warning: only the beginning of {size(len(data))} is shown, for the store of large results is full. "
        "Ask for less: fewer rows, fewer columns, a sum.]\n"
    )
    return warning + data[: max(0, most_bytes - len(warning))].decode("utf-8", "ignore")


def _names(content: ResultContent) -> list[str]:
    if content.kind == "rows":
        return [_clean(name)[:NAME_CHARS] for name in content.columns]
    if content.kind == "entries":
        return [f"{_clean(str(key))[:NAME_CHARS]} ({type_of(value)})" for key, value in content.rows[:100]]
    return []


def _listed(names: Sequence[str], shown: int) -> str:
    more = len(names) - shown
    return ": " + ", ".join(names[:shown]) + (f", … {more:,} more" if more else "")


def _line(row: Sequence[object], content: ResultContent) -> str:
    match content.kind:
        case "rows" if content.source == "csv":
            return _clean(",".join(str(cell or "")[:CELL_CHARS] for cell in row[:COLUMNS_KEPT]))
        case "rows":
            return "[" + ",".join(_cell(cell) for cell in row[:COLUMNS_KEPT]) + "]"
        case "entries":
            return f"{_clean(str(row[0]))[:NAME_CHARS]}: {_cell(row[1])}"
        case "lines":
            return _clean(str(row[0])[:LINE_CHARS])
        case _:
            return _cell(row[0])


def _cell(value: object) -> str:
    if isinstance(value, str):
        value = short(value, CELL_CHARS)
    elif isinstance(value, list | dict) and len(value) > CELL_CHARS:
        return f"({type_of(value)})"
    return short(_clean(json.dumps(value, ensure_ascii=False, separators=(",", ":"))), 2 * CELL_CHARS)


def _clean(text: str) -> str:
    """One line of text, so that nothing in a result looks like one of our lines."""
    return _UNSEEN.sub(" ", text).strip()
