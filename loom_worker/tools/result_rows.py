"""A result as what is in it: rows with columns, items, the entries of an object, or lines of text. Pure."""

import csv
import io
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal, cast

from loom_worker.core.errors import ToolFailed
from loom_worker.core.values.json import Json

Kind = Literal["rows", "items", "entries", "lines"]
Source = Literal["table", "objects", "arrays", "json", "value", "csv", "text"]
"""table: ``{"columns": […], "rows": [[…]]}``; objects, arrays: an array of such; json: another array
or object; value: a number and the like."""
SNIFFED_ROWS = 20
"""So many rows of a text must look like CSV for the rest to be tried."""
DELIMITERS = ",\t;|"
MOST_PATH_CHARS = 1000
MOST_DEPTH = 100
"""Arrays and objects in one another; deeper results are read as text."""
MOST_CELLS = 5_000_000
"""Of a table. A few objects with many keys among many with few would be far more cells than they have values."""
_INDEX = re.compile(r"\[(-?\d{1,9})\]")
_NUMBER = re.compile(r"\d{1,9}")


@dataclass(frozen=True, slots=True)
class ResultContent:
    """What a result, or a place in it, holds."""

    kind: Kind
    columns: tuple[str, ...]
    """Of the rows; "value" for items, "key" and "value" for entries, "line" for lines."""
    rows: Sequence[Sequence[object]]
    """Every row has as many cells as there are columns."""
    source: Source
    text: str = ""
    """Of lines: the text itself."""

    def place(self, base: str, row: int, column: int | None = None) -> str | None:
        """Where a row, or a cell of it, stands in the JSON value, as a path; None in text.

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
    """The JSON value of a result, or the text itself where it is none."""
    if content_type != "application/json" and text.lstrip()[:1] not in ("{", "["):
        return text
    try:
        value = json.loads(text, parse_constant=str)  # NaN is no JSON: it stays as it was written
    except (ValueError, RecursionError):
        return text
    return text if _is_deep(value) else value


def _is_deep(value: object) -> bool:
    """True for nesting that could be read but perhaps not written again: both recurse, from different depths."""
    level = [value] if isinstance(value, list | dict) else []
    for _ in range(MOST_DEPTH):
        inside = chain.from_iterable(each.values() if isinstance(each, dict) else each for each in level)
        level = [each for each in inside if type(each) is dict or type(each) is list]
        if not level:
            return False
    return True


def content_of(value: object, content_type: str) -> ResultContent:
    """What a parsed result holds; text that looks like a table is one."""
    match value:
        case str():
            return _table_of_text(value, content_type) or _lines(value)
        case {"columns": list(columns), "rows": list(rows)} if columns and _is_table(columns, rows):
            return _table([str(name) for name in columns], rows, "table") or _items(rows)
        case list():
            return _of_array(value)
        case dict():
            return _entries(value)
        case _:
            return ResultContent("items", ("value",), [(value,)], "value")


def at(value: object, path: str | None) -> object:
    """The place of a value that a path leads to: ``/data/0/name`` (JSON pointer), or ``data[0].name``.

    Raises:
        ToolFailed: there is no such place; the text says what there is.
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
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in parts)


def _parts(path: str) -> list[str]:
    if len(path) > MOST_PATH_CHARS:
        raise ToolFailed(f"the path is longer than {MOST_PATH_CHARS} characters", "INVALID_INPUT")
    if path.startswith("/"):
        return [part.replace("~1", "/").replace("~0", "~") for part in path[1:].split("/")]
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
            told = f"has {len(value)} items, 0 to {len(value) - 1}" if value else "is an empty array"
            raise ToolFailed(f"{where} {told}: no {part[:40]!r}", "INVALID_INPUT")
        case str() if where == "the result":
            raise ToolFailed("the result is text, not JSON: leave the path out", "INVALID_INPUT")
        case _:
            raise ToolFailed(f"{where} is {type_of(value)}: nothing is in it", "INVALID_INPUT")


def type_of(value: object) -> str:
    """What JSON calls a value."""
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


def _is_table(columns: list[object], rows: list[object]) -> bool:
    width = len(columns)
    return all(isinstance(name, str) for name in columns) and all(
        isinstance(row, list) and len(row) <= width for row in rows
    )


def _of_array(items: list[object]) -> ResultContent:
    if items and all(isinstance(item, dict) for item in items):
        return _of_objects(cast(list[Json], items)) or _items(items)
    if items and all(isinstance(item, list) and item for item in items):
        rows = cast(list[list[object]], items)
        width = max(map(len, rows))
        return _table([f"column_{n + 1}" for n in range(width)], rows, "arrays") or _items(items)
    return _items(items)


def _of_objects(items: list[Json]) -> ResultContent | None:
    columns = list(dict.fromkeys(key for item in items for key in item))
    if not columns or len(columns) * len(items) > MOST_CELLS:
        return None
    return ResultContent("rows", tuple(columns), [tuple(item.get(key) for key in columns) for item in items], "objects")


def _table(columns: list[str], rows: Sequence[Sequence[object]], source: Source) -> ResultContent | None:
    """Rows, those that are too short filled up; None if that makes too many cells."""
    width = len(columns)
    if width * len(rows) > MOST_CELLS:
        return None
    if any(len(row) != width for row in rows):
        rows = [[*row, *[None] * (width - len(row))] for row in rows]
    return ResultContent("rows", tuple(columns), rows, source)


def _items(items: list[object]) -> ResultContent:
    return ResultContent("items", ("value",), [(item,) for item in items], "json")


def _entries(value: Json) -> ResultContent:
    return ResultContent("entries", ("key", "value"), list(value.items()), "json")


def _lines(text: str) -> ResultContent:
    return ResultContent("lines", ("line",), [(line,) for line in text.splitlines()], "text", text)


def _table_of_text(text: str, content_type: str) -> ResultContent | None:
    is_declared = content_type.startswith("text/csv")
    delimiter = _delimiter(text, is_declared=is_declared)
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


def _delimiter(text: str, *, is_declared: bool) -> str | None:
    """The character between cells: of the first rows each has as many cells as the header, and that has names."""
    head = text[:100_000].splitlines()[: SNIFFED_ROWS + 1]
    if is_declared:
        return max(DELIMITERS, key=head[0].count) if head else None
    return next((each for each in DELIMITERS if _fits(head, each)), None)


def _fits(head: Sequence[str], delimiter: str) -> bool:
    try:
        rows = list(csv.reader(head, delimiter=delimiter, strict=True))
    except csv.Error:
        return False
    if len(rows) < 3 or len(rows[0]) < 2:
        return False
    names = [name.strip() for name in rows[0]]
    is_header = len(set(names)) == len(names) and not any(name == "" or name[0].isdigit() for name in names)
    return is_header and all(len(row) == len(names) for row in rows)
