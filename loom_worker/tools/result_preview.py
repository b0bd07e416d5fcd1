"""What the model reads instead of a large result: its reference, its shape, and as much as fits. Pure."""

import json
import re
from collections.abc import Callable, Sequence

from loom_worker.core.text import longest
from loom_worker.core.values.json import Json
from loom_worker.tools.result_rows import ResultContent, type_of

Count = Callable[[str], int]

MOST_TOKENS = 82
"""Of a whole preview."""
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
        value = value if len(value) <= CELL_CHARS else value[: CELL_CHARS - 1] + "…"
    elif isinstance(value, list | dict) and len(value) > CELL_CHARS:
        return f"({type_of(value)})"
    text = _clean(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    return text if len(text) <= 2 * CELL_CHARS else text[: 2 * CELL_CHARS - 1] + "…"


def _clean(text: str) -> str:
    """One line of text, so that nothing in a result looks like one of our lines."""
    return _UNSEEN.sub(" ", text).strip()
