"""The tools by which an agent reads a stored result: page by page, or by a SELECT over its rows."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from loom_worker.core.errors import ToolFailed
from loom_worker.core.text import longest
from loom_worker.core.values.chat import ToolSpec
from loom_worker.core.values.json import Json
from loom_worker.core.values.tools import Caller, Tool
from loom_worker.tools.references import References
from loom_worker.tools.result_query import TABLE, ask, ask_copy, build
from loom_worker.tools.result_rows import ResultContent, at, content_of, parsed, pointer, type_of

PAGE_BYTES = 12 * 1024
"""Of an answer: less than what becomes a reference, or reading one result would store another."""
USUAL_ROWS, MOST_ROWS = 50, 1000
ELIDED_CHARS = 500
MOST_REFS = 5
_FARTHEST = 1_000_000_000
_NAME = "[A-Za-z][A-Za-z0-9_]{0,39}"
"""Of the table for a reference."""
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
                "description": "further references, by the names for their tables",
                "additionalProperties": {"type": "string"},
                "propertyNames": {"pattern": f"^{_NAME}$"},
                "maxProperties": MOST_REFS,
            },
        },
        "required": ["ref", "sql"],
        "additionalProperties": False,
    },
)
