"""The tools by which an agent reads what was kept apart: a page of it, or an answer to a SELECT over its rows."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from loom_worker.core.errors import ToolFailed
from loom_worker.core.values.chat import ToolSpec
from loom_worker.core.values.json import Json
from loom_worker.core.values.tools import Caller, Tool
from loom_worker.tools.references import References
from loom_worker.tools.result_query import TABLE, ask, ask_copy, build
from loom_worker.tools.result_rows import ResultContent, at, content_of, parsed, pointer, type_of

PAGE_BYTES = 12 * 1024
"""Of an answer: below what makes a result a reference, or reading one would end in another."""
USUAL_ROWS, MOST_ROWS = 50, 1000
ELIDED_CHARS = 500
MOST_REFS = 5
_FARTHEST = 1_000_000_000
_NAME = "[A-Za-z][A-Za-z0-9_]{0,39}"
"""Of a table that a reference becomes."""
_RESERVED = "sqlite_"
"""What SQLite's own tables begin with, in any case of letters."""


@dataclass(frozen=True, slots=True)
class ResultParts:
    """What the tools work with."""

    references: References
    page_bytes: int = PAGE_BYTES


def result_tools(references: References, *, reference_bytes: int) -> tuple[Tool, ...]:
    """``get_tool_result`` and ``query_tool_result``.

    Args:
        reference_bytes: from this size on results become references; answers stay well below it.
    """
    parts = ResultParts(references, min(PAGE_BYTES, reference_bytes * 3 // 4))

    def get(arguments: Json, caller: Caller) -> str:
        offset, limit = int(arguments.get("offset", 0)), int(arguments.get("limit", USUAL_ROWS))
        path = arguments.get("path")
        content = _content(parts, arguments["ref"], caller, path)
        return page(content, offset=offset, limit=limit, most_bytes=parts.page_bytes, base=pointer(path))

    def query(arguments: Json, caller: Caller) -> str:
        return _compact(_queried(parts, arguments, caller))

    # Neither is bounded: 10 MB take a while to read and to unpack.
    return (Tool(_GET, get, occasion="reference"), Tool(_QUERY, query, occasion="reference"))


def page(content: ResultContent, *, offset: int, limit: int, most_bytes: int, base: str = "") -> str:
    """Rows, items, entries or lines from an offset on, as JSON text; as many as are asked for and fit.

    Text with a line that is by itself too long comes by characters.

    Args:
        most_bytes: of the answer, in UTF-8.
        base: the path of the content, for the paths of what is too long to be shown.

    Raises:
        ToolFailed: there is nothing at that offset, or a row has too many cells.
    """
    if content.kind == "lines" and any(len(str(row[0])) > most_bytes // 8 for row in content.rows):
        return _characters(content.text, offset=offset, most_bytes=most_bytes)
    total = len(content.rows)
    if offset and offset >= total:
        raise ToolFailed(f"offset {offset} is behind the end: there are {total} {content.kind}", "INVALID_INPUT")
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
    """A row as it is shown: items and lines as themselves, the others as an array of cells."""
    return row[0] if content.kind in ("items", "lines") else list(row)


def _elided(content: ResultContent, base: str, n: int, *, most_chars: int) -> list[object]:
    """A row with each long cell cut, and the path at which it is whole."""
    row = content.rows[n]
    most = max(16, min(ELIDED_CHARS, most_chars // len(row)))
    return [cell if len(_compact(cell)) <= most else _cut(content, base, (n, at), most) for at, cell in enumerate(row)]


def _cut(content: ResultContent, base: str, cell: tuple[int, int], most_chars: int) -> str:
    n, column = cell
    where = content.place(base, n, column)
    whole = f"; path {where}" if where else ""
    value = content.rows[n][column]
    if isinstance(value, str):
        return f"{value[:most_chars]}… ({len(value)} characters{whole})"
    return f"({type_of(value)}{whole})"


def _bytes(value: object) -> int:
    return len(_compact(value).encode()) + 1


def _envelope(content: ResultContent, shown: list[object], offset: int) -> str:
    total, following = len(content.rows), offset + len(shown)
    told: Json = {"columns": list(content.columns)} if content.kind == "rows" else {}
    told |= {content.kind: shown, "offset": offset, "total": total}
    told["next_offset"] = following if following < total else None
    return _compact(told)


def _characters(text: str, *, offset: int, most_bytes: int) -> str:
    if offset >= len(text):
        raise ToolFailed(f"offset {offset} is behind the end: there are {len(text)} characters", "INVALID_INPUT")
    told: Json = {"text": "", "unit": "characters", "offset": offset, "total": len(text), "next_offset": len(text)}
    room, low, high = most_bytes, 1, min(most_bytes, len(text) - offset)
    while low < high:  # how much of it fits depends on how much of it must be escaped
        middle = (low + high + 1) // 2
        is_fit = len(_compact({**told, "text": text[offset : offset + middle]}).encode()) <= room
        low, high = (middle, high) if is_fit else (low, middle - 1)
    following = offset + low
    told |= {"text": text[offset:following], "next_offset": following if following < len(text) else None}
    return _compact(told)


def _compact(value: object) -> str:
    """JSON that every store can carry: a lone surrogate, which a tool's JSON may hold, becomes a question mark."""
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
    input_schema={
        "type": "object",
        "properties": {
            "ref": _REF,
            "offset": {"type": "integer", "minimum": 0, "maximum": _FARTHEST, "default": 0},
            "limit": {"type": "integer", "minimum": 1, "maximum": MOST_ROWS, "default": USUAL_ROWS},
            "path": _PATH,
        },
        "required": ["ref"],
        "additionalProperties": False,
    },
)
_QUERY = ToolSpec(
    name="query_tool_result",
    description=(
        "Ask a large result stored under a reference (ref_…) by one SQLite SELECT over the table `result`: rows under "
        "their own column names, items of an array in the column value, entries of an object in key and value, lines "
        "of text in line; nested values are JSON text (json_extract)."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "ref": _REF,
            "sql": {"type": "string", "maxLength": 20_000, "description": "SELECT … FROM result …"},
            "path": _PATH,
            "refs": {
                "type": "object",
                "description": "further references, by the names that their tables shall have",
                "additionalProperties": {"type": "string"},
                "propertyNames": {"pattern": f"^{_NAME}$"},
                "maxProperties": MOST_REFS,
            },
        },
        "required": ["ref", "sql"],
        "additionalProperties": False,
    },
)
