"""Turns a query's result into JSON: rows until either cap is reached, every value made safe."""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from itertools import islice

from loom_worker.core.values.json import Json

MAX_CELL_CHARS = 2000
"""Longer texts are cut, so that one cell cannot crowd out all other rows."""
MAX_NAME_CHARS = 200
FETCH_ROWS = 20
"""Rows fetched first: few, as each may be a megabyte."""
FETCH_BYTES = 250_000
"""Bytes of JSON text fetched at a time from then on, estimated from the rows so far."""
MAX_FETCH_ROWS = 500


class TooWide(ValueError):
    """The names of the columns leave no left_bytes for a row.

    Not a ToolFailed: importing the error tree would cost the guard's process 15 ms.
    """


def encode(value: object) -> str:
    """Encode JSON in its shortest form.

    Raises:
        ValueError: the value holds NaN or infinity.
    """
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def collect(
    names: Sequence[str], fetchmany: Callable[[int], Sequence[Sequence[object]]], *, max_rows: int, max_bytes: int
) -> Json:
    """Read rows until there are ``max_rows`` or their JSON text would exceed ``max_bytes`` (UTF-8).

    Returns:
        ``columns``, ``rows``, ``row_count`` (rows returned) and ``truncated`` (a row or part of a cell was left out).

    Raises:
        TooWide: the columns' names alone exceed ``max_bytes``.
    """
    result: Json = {"columns": [_cut(name, MAX_NAME_CHARS) for name in names], "rows": [], "row_count": 0}
    result["truncated"] = False
    left_bytes = max_bytes - len(encode(result).encode()) - len(str(max_rows))
    if left_bytes < 0:
        raise TooWide(f"{len(names)} columns do not fit a result: name those you need")
    batches = _Batches(fetchmany)
    for row in islice(batches, max_rows + 1):
        cells = [safe(cell) for cell in row]
        size_bytes = len(encode(cells).encode()) + 1
        batches.read(size_bytes)
        left_bytes -= size_bytes
        if left_bytes < 0 or len(result["rows"]) == max_rows:
            result["truncated"] = True
            break
        result["rows"].append(cells)
        result["truncated"] |= any(isinstance(cell, str) and len(cell) > MAX_CELL_CHARS for cell in row)
    result["row_count"] = len(result["rows"])
    return result


def safe(value: object) -> object:
    """A value as JSON: bytes as their length, times in ISO form, Decimal as a number, NaN as null."""
    match value:
        case None | bool() | int():
            return value
        case str():
            return _cut(value, MAX_CELL_CHARS)
        case float():
            return value if math.isfinite(value) else None
        case Decimal():
            number = float(value) if value.is_finite() else math.nan
            is_whole = abs(number) < 1e30 and value == value.to_integral_value()
            return int(value) if is_whole else safe(number)
        case bytes() | bytearray() | memoryview():
            return {"bytes": len(value)}
        case datetime() | date() | time():
            return value.isoformat()
        case list() | tuple():
            return [safe(each) for each in value]
        case dict():
            return {str(key): safe(each) for key, each in value.items()}
        case _:
            return _cut(str(value), MAX_CELL_CHARS)


class _Batches:
    """All rows of a cursor, fetched in batches of as many as fit FETCH_BYTES."""

    def __init__(self, fetchmany: Callable[[int], Sequence[Sequence[object]]]) -> None:
        self._fetchmany = fetchmany
        self._rows = 0
        self._bytes = 0

    def read(self, size_bytes: int) -> None:
        self._rows += 1
        self._bytes += size_bytes

    def __iter__(self) -> Iterator[Sequence[object]]:
        count = FETCH_ROWS
        while rows := self._fetchmany(count):
            yield from rows
            count = min(MAX_FETCH_ROWS, max(FETCH_ROWS, FETCH_BYTES * self._rows // max(1, self._bytes)))


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"
