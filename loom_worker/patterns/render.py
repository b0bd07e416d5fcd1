"""A pattern as the model reads it, templates with their values filled in, and the tool that hands out patterns."""

import difflib
import re
from collections.abc import Mapping
from html import escape
from typing import Protocol

from loom_worker.errors import ToolFailed
from loom_worker.values.chat import ToolSpec
from loom_worker.values.json import Json
from loom_worker.values.patterns import Parameter, Pattern, PatternMatch
from loom_worker.values.tools import Caller, Tool

_PLACEHOLDER = re.compile(r"\{\{\s*\.?(\w+)\s*\}\}")
_NOT_SQL = frozenset({"rest", "documents", "mcp"})


def fill(template: str, values: Mapping[str, str]) -> str:
    """Put values in place of ``{{x}}`` and ``{{.x}}`` in one pass; unknown placeholders and all else stay."""
    return _PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), template)


def for_message(match: PatternMatch) -> str:
    """The pattern of a match, with its score, as it stands beside the user's message."""
    return _document(match.pattern, f' score="{match.score:.2f}"')


def as_document(pattern: Pattern) -> str:
    """The pattern alone, as ``load_pattern`` answers it."""
    return _document(pattern, "")


class Lookup(Protocol):
    """Where patterns are found by id; asked anew on each use, so a reloaded library is seen at once."""

    def by_id(self, pattern_id: str) -> Pattern | None:
        """The pattern, or None."""

    def ids(self) -> tuple[str, ...]:
        """The ids of all patterns."""


def load_pattern_tool(patterns: Lookup) -> Tool:
    """The tool ``load_pattern(id)``; an unknown id fails with the nearest known ones."""

    def run(arguments: Json, _caller: Caller) -> str:
        pattern = patterns.by_id(arguments["id"])
        if pattern is None:
            raise ToolFailed(_unknown(arguments["id"], patterns.ids()), "ERROR_NOT_FOUND")
        return as_document(pattern)

    spec = ToolSpec(
        name="load_pattern",
        description="Read a pattern of the library (a tried way to answer a kind of question) by its id.",
        input_schema={
            "type": "object",
            "properties": {"id": {"type": "string", "description": "such as sql/top_n"}},
            "required": ["id"],
            "additionalProperties": False,
        },
    )
    return Tool(spec=spec, run=run, is_bounded=True)


def _unknown(wanted: str, ids: tuple[str, ...]) -> str:
    """One line of at most 100 characters (what the model is told of a failure) for ids of usual length."""
    names = {pattern_id.rsplit("/", 1)[-1]: pattern_id for pattern_id in ids}
    near = [names[name] for name in difflib.get_close_matches(wanted.rsplit("/", 1)[-1], names, n=2, cutoff=0.5)]
    hint = ", ".join(near or ids[:2])
    return f"no pattern {wanted[:30]!r}; " + (f"there is {hint}" if hint else "the library is empty")


def _document(pattern: Pattern, attributes: str) -> str:
    parts = [
        f'<pattern id="{escape(pattern.id)}"{attributes}>',
        pattern.title,
        pattern.description,
        *(_template(pattern, name, text) for name, text in pattern.templates.items()),
        _section("Parameters:", "\n".join(_parameter(parameter) for parameter in pattern.parameters)),
        _section("Best practices:", pattern.best_practices.strip()),
        _section("Related patterns:", ", ".join(pattern.related_patterns)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n</pattern>"


def _template(pattern: Pattern, name: str, text: str) -> str:
    language = "" if pattern.backend_type in _NOT_SQL else "sql"
    ticks = max((len(run) for run in re.findall(r"`{3,}", text)), default=2) + 1
    fence = "`" * ticks
    return f"Template {name}:\n{fence}{language}\n{text.strip()}\n{fence}"


def _parameter(parameter: Parameter) -> str:
    facts = [parameter.type]
    if parameter.is_required:
        facts.append("required")
    if parameter.default is not None:
        facts.append(f"default {_line(parameter.default)}")
    told = f": {_line(parameter.description)}" if parameter.description else ""
    return f"- {parameter.name} ({', '.join(facts)}){told}"


def _section(heading: str, body: str) -> str:
    return f"{heading}\n{body}" if body else ""


def _line(text: str) -> str:
    return " ".join(text.split())
