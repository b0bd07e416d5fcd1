"""What the model is sent in the place of a large result: its reference, its shape, and as much as fits. Pure."""

import json
import re
from collections.abc import Callable, Sequence

from loom_worker.core.values.json import Json
from loom_worker.tools.result_rows import ResultContent, type_of

Count = Callable[[str], int]

MOST_TOKENS = 82
"""Of a preview with everything in it."""
NAME_CHARS, CELL_CHARS, LINE_CHARS = 40, 60, 300
COLUMNS_KEPT = 50
"""Names in a reference's metadata."""
_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def preview(ref: str, content: ResultContent, *, size_bytes: int, count: Count) -> str:
    """Less than 100 tokens: reference, shape and size, columns, and in what they leave the first rows.

    Should the counter find the first line alone too long, there is nothing but that line.
    """
    told = f"[Large dataset stored: {ref}]"
    told = _added(told, f"\n{shape(content)}, {size(size_bytes)}", MOST_TOKENS, count)
    told = _with_names(told, content, count)
    for row in content.rows[:20]:
        longer = _added(told, f"\n{_line(row, content)}", MOST_TOKENS, count)
        if longer == told:
            return _with_part(told, _line(row, content), count)
        told = longer
    return told


def shape(content: ResultContent) -> str:
    """How much there is, in words."""
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
    """The same as values, for a reference's metadata."""
    told: Json = {"kind": content.kind, "rows": len(content.rows)}
    if content.kind == "rows":
        told["columns"] = [_clean(name)[:NAME_CHARS] for name in content.columns[:COLUMNS_KEPT]]
        told["column_count"] = len(content.columns)
    if content.kind == "lines":
        told["characters"] = len(content.text)
    return told


def size(size_bytes: int) -> str:
    """Bytes as one reads them: ``1.3 MB``."""
    for unit, step in (("MB", 1_000_000), ("KB", 1_000)):
        if size_bytes >= step:
            return f"{size_bytes / step:.1f} {unit}"
    return f"{size_bytes} bytes"


def shortened(text: str, *, most_bytes: int) -> str:
    """What stands in the conversation when there is no room to keep a large result apart: its beginning, and why."""
    data = text.encode("utf-8", "replace")
    warning = (
        f"[Warning: only the beginning of {size(len(data))} is shown, for the store of large results is full. "
        "Ask for less: fewer rows, fewer columns, a sum.]\n"
    )
    return warning + data[: max(0, most_bytes - len(warning))].decode("utf-8", "ignore")


def _with_names(told: str, content: ResultContent, count: Count) -> str:
    """Add as many names of columns or keys as fit, and how many more there are."""
    names = _names(content)
    if not names:
        return told
    low, high = 0, min(len(names), 100)
    while low < high:  # the longest list that fits, by halving: counting is what costs
        middle = (low + high + 1) // 2
        is_fit = count(told + _listed(names, middle)) <= MOST_TOKENS
        low, high = (middle, high) if is_fit else (low, middle - 1)
    return told + _listed(names, low) if low else told


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


def _added(told: str, more: str, most_tokens: int, count: Count) -> str:
    return told + more if count(told + more) <= most_tokens else told


def _with_part(told: str, line: str, count: Count) -> str:
    """Add the longest beginning of a line that fits, if it is worth its while."""
    low, high = 0, len(line)
    while low < high:
        middle = (low + high + 1) // 2
        is_fit = count(f"{told}\n{line[:middle]}…") <= MOST_TOKENS
        low, high = (middle, high) if is_fit else (low, middle - 1)
    return f"{told}\n{line[:low]}…" if low >= 10 else told


def _clean(text: str) -> str:
    """One line of text: nothing in a result may look like a line of ours."""
    return _UNSEEN.sub(" ", text).strip()
