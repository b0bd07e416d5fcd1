"""The tools by which a model finds a pattern of the library itself."""

import difflib
import json
from collections import Counter
from collections.abc import Callable

from loom_worker.core.errors import ToolFailed
from loom_worker.core.text import one_line
from loom_worker.core.values.chat import ToolSpec, object_schema
from loom_worker.core.values.json import Json
from loom_worker.core.values.patterns import Pattern
from loom_worker.core.values.tools import Caller, Tool
from loom_worker.patterns.live import LiveLibrary
from loom_worker.patterns.render import as_document

MOST_LINES = 100
"""Lines of a result of ``list_patterns``."""
FAILURE_CHARS = 100
"""Longest text of a failure."""
TITLE_CHARS = 120
_VALUE_CHARS, _MOST_VALUES = 2_000, 50


def pattern_tools(patterns: LiveLibrary) -> tuple[Tool, ...]:
    """``load_pattern`` and ``list_patterns``."""

    def load(arguments: Json, _caller: Caller) -> str:
        pattern = patterns.by_id(arguments["id"])
        if pattern is None:
            wanted = arguments["id"]
            library, _, name = wanted.casefold().rpartition("/")
            # Of patterns with one name, that of the library asked for is suggested.
            ordered = sorted(patterns.ids(), key=lambda each: each.casefold().startswith(f"{library}/"))
            names = {each.rpartition("/")[2].casefold(): each for each in ordered}
            raise ToolFailed(_with_hints(f"no pattern '{one_line(wanted, 30)}'", name, names), "ERROR_NOT_FOUND")
        values = arguments.get("parameters")
        return as_document(pattern, None if values is None else {name: _text(each) for name, each in values.items()})

    def listing(arguments: Json, _caller: Caller) -> str:
        wanted = arguments.get("category", "").strip(" /")
        found = [*(_in_category(patterns.patterns(), wanted) if wanted else patterns.patterns())]
        words = arguments.get("query", "").casefold().split()
        if words:
            found = [each for each in found if (text := _searched_text(each)) and all(word in text for word in words)]
        if found:
            return "\n".join(_lines(found))
        return "No pattern of these has all those words; try fewer or other ones." if words else "The library is empty."

    return (_tool(_LOAD, load), _tool(_LIST, listing))


def _tool(spec: ToolSpec, run: Callable[[Json, Caller], object]) -> Tool:
    return Tool(spec=spec, run=run, is_bounded=True, is_idempotent=True, is_read_only=True, occasion="seldom")


def _text(value: object) -> str:
    """A value as it stands in a template: no quotes, true and false in lower case, lists with commas."""
    if isinstance(value, str):
        return value
    return ", ".join(map(_text, value)) if isinstance(value, list) else json.dumps(value)


def _searched_text(pattern: Pattern) -> str:
    texts = (pattern.id, pattern.title, pattern.description, pattern.category, *pattern.tags, *pattern.intents)
    return " ".join((*texts, *pattern.use_cases)).casefold()


def _in_category(patterns: tuple[Pattern, ...], category: str) -> tuple[Pattern, ...]:
    """Those of a category, of a library, or of the libraries in a folder."""
    wanted = category.casefold()
    chosen = tuple(
        each
        for each in patterns
        if wanted == each.category.casefold() or f"{_library(each)}/".casefold().startswith(f"{wanted}/")
    )
    if not chosen:
        known = {name.casefold(): name for each in patterns for name in (_library(each), each.category) if name}
        raise ToolFailed(_with_hints(f"no category '{one_line(category, 30)}'", wanted, known), "ERROR_NOT_FOUND")
    return chosen


def _lines(patterns: list[Pattern]) -> list[str]:
    groups: dict[str, list[Pattern]] = {}
    for each in patterns:
        groups.setdefault(_library(each), []).append(each)
    entries: list[str | Pattern] = []
    for name, group in groups.items():
        entries += [name, *group]
    if len(entries) <= MOST_LINES:
        return list(map(_line, entries))
    shown = entries[: MOST_LINES - 1]
    if isinstance(shown[-1], str):
        shown.pop()
    rest = Counter(_library(each) for each in entries[len(shown) :] if isinstance(each, Pattern))
    by_library = one_line(", ".join(f"{name} {count:,}" for name, count in rest.items()), 500)
    return [*map(_line, shown), f"… and {rest.total():,} more ({by_library}); ask by category or query."]


def _line(entry: str | Pattern) -> str:
    if isinstance(entry, str):
        return f"{one_line(entry)}:"
    return f"- {one_line(entry.id)}: {one_line(entry.title, TITLE_CHARS)}"


def _library(pattern: Pattern) -> str:
    return pattern.id.rpartition("/")[0]


def _with_hints(what: str, wanted: str, known: dict[str, str]) -> str:
    """One line of at most FAILURE_CHARS that names the most similar known ones, as far as they fit.

    Args:
        known: what is compared, to what is named.
    """
    near = difflib.get_close_matches(wanted[:100], known, n=3, cutoff=0.5)
    hints = [known[name] for name in near or list(known)[:2]]
    if not hints:
        return f"{what}; the library is empty"
    line = f"{what}; there is {hints[0]}"
    for hint in hints[1:]:
        line = f"{line}, {hint}" if len(line) + len(hint) + 2 <= FAILURE_CHARS else line
    return one_line(line, FAILURE_CHARS)


_LOAD = ToolSpec(
    name="load_pattern",
    description=(
        "Read a whole pattern of the library (a tried way to answer a kind of question) by its id. With parameters "
        "its templates come back filled in, ready to run; what is missing is said."
    ),
    input_schema=object_schema(
        "id",
        id={"type": "string", "description": "such as sql/top_n"},
        parameters={
            "type": "object",
            "description": "values for the placeholders of its templates, by name; the others take their defaults",
            "additionalProperties": {
                "type": ["string", "number", "boolean", "array"],
                "maxLength": _VALUE_CHARS,
                "maxItems": _MOST_VALUES,
                "items": {"type": ["string", "number", "boolean"], "maxLength": _VALUE_CHARS},
            },
            "maxProperties": _MOST_VALUES,
        },
    ),
)
_LIST = ToolSpec(
    name="list_patterns",
    description=(
        "List the patterns of the library (tried ways to answer kinds of questions), id and title, grouped by library."
    ),
    input_schema=object_schema(
        category={"type": "string", "description": "a library such as sql, or a category of patterns"},
        query={"type": "string", "maxLength": 200, "description": "words that all must stand in a pattern"},
    ),
)
