"""A pattern as the model reads it, and templates with their values filled in. Pure.

What a file says stays inside its block: no text of a pattern ends the block, nor the fence its code stands in, nor
looks like a part of another name.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from html import escape

from loom_worker.core.text import clean, defused, one_line
from loom_worker.core.values.patterns import CommonError, Example, Parameter, Pattern, PatternMatch, Template

MOST_CHARS = 6_000
"""Longest text of a pattern added to a message; ``load_pattern`` gives the rest."""
PARAMETERS = "parameters"
DESCRIPTION_CHARS = 800
"""Longest description added to a message."""
FILLED_CHARS = 1_000_000
"""Longest text of a pattern's filled templates together: short ones can repeat a long value without end."""
ID_CHARS = 255
"""Longest id that is shown; the table of uses keeps as many characters."""

_NAMES_CHARS = 350
"""For the names of all parts that can be left out, the end tag, and blank lines."""
_PLACEHOLDER = re.compile(r"\{\{\s*\.?(\w+)\s*\}\}")
_NOT_SQL = frozenset({"rest", "documents", "mcp"})
_SQL = frozenset(
    "sql sqlite postgres postgresql mysql mariadb duckdb clickhouse mssql sqlserver oracle teradata snowflake bigquery "
    "redshift databricks trino presto hive spark".split()
)
_SQL_BEGINS = re.compile(r"\s*(?:--[^\n]*\n\s*)*(?:SELECT|WITH|EXPLAIN|INSERT|UPDATE|DELETE|PRAGMA|VALUES|MERGE)\s")
_LINE_END = re.compile("\r\n?|[\u2028\u2029]")
# A line of prose that would open a fence, or be read as a heading of ours; four spaces make it an indented line.
_LOOKALIKE = re.compile(r"^ {0,3}(?=```|~~~|(?:Template [^\n]+|Parameters):[ \t]*$)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    heading: str
    pieces: tuple[str, ...]
    between: str = "\n"
    is_prose: bool = False
    """True: what follows a piece that is left out makes no sense without it."""

    def text(self, pieces: tuple[str, ...]) -> str:
        return self.heading + self.between.join(pieces)

    def fitting(self, room: int) -> tuple[str, ...]:
        kept: list[str] = []
        left = room - len(self.heading)
        for piece in self.pieces:
            size = len(piece) + (len(self.between) if kept else 0)
            if size <= left:
                kept.append(piece)
                left -= size
            elif self.is_prose:
                break
        return tuple(kept)


def placeholders(text: str) -> tuple[str, ...]:
    """The names in ``{{x}}``, ``{{ x }}`` and ``{{.x}}``, each once, in the order in which they first stand there."""
    return tuple(dict.fromkeys(_PLACEHOLDER.findall(text)))


def fill(template: str, values: Mapping[str, str]) -> str:
    """Put values in place of ``{{x}}`` and ``{{.x}}`` in one pass; unknown placeholders and all else stay."""
    return _PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), template)


def for_message(match: PatternMatch) -> str:
    """The pattern of a match as text for the user's message, in at most MOST_CHARS characters.

    What does not fit is left out, the last parts first; a line then names it, and says how to get it.
    """
    pattern = match.pattern
    begin = _begin(pattern, f' score="{match.score:.2f}" confidence="{match.confidence:.2f}"')
    description = _prose(pattern.description[:DESCRIPTION_CHARS])
    is_cut = len(pattern.description) > DESCRIPTION_CHARS
    head = [_title(pattern), f"{description}…" if is_cut else description]
    sections = [
        _Section("templates", "", tuple(_templates(pattern, pattern.templates)), between="\n\n"),
        *_sections(pattern, pattern.examples[:1]),
    ]
    whole = _block(begin, [*head, *_texts(sections)])
    if len(whole) <= MOST_CHARS and not is_cut:
        return whole
    parts, missing = _fitted(sections, MOST_CHARS - len("".join([begin, *head, _left_out(pattern, [])])) - _NAMES_CHARS)
    missing = ["the end of the description", *missing] if is_cut else missing
    return _block(begin, [*head, *parts, _left_out(pattern, missing) if missing else ""])


def as_document(pattern: Pattern, values: Mapping[str, str] | None = None) -> str:
    """The whole pattern.

    Args:
        values: what to put into the templates, where a value is missing the parameter's default; None: the
            templates are shown with their placeholders.
    """
    templates, remarks = (pattern.templates, []) if values is None else _filled(pattern, values)
    parts = [
        _title(pattern),
        _prose(pattern.description),
        "\n".join(remarks),
        *_templates(pattern, templates),
        *_texts(_sections(pattern, pattern.examples)),
        "\n".join(["Use cases:", *(f"- {_line(each)}" for each in pattern.use_cases)]) if pattern.use_cases else "",
    ]
    return _block(_begin(pattern, ""), parts)


def _sections(pattern: Pattern, examples: tuple[Example, ...]) -> list[_Section]:
    """All but the templates, what matters most first."""
    practices = _prose(pattern.best_practices)
    syntax = _plain(pattern.syntax).strip()
    related = _prose(", ".join(filter(None, map(_line, pattern.related_patterns))))
    return [
        _Section(PARAMETERS, "Parameters:\n", tuple(map(_parameter, pattern.parameters))),
        _Section(
            "lines of best practices",
            "Best practices:\n",
            tuple(practices.split("\n")) if practices else (),
            is_prose=True,
        ),
        _Section("common errors", "Common errors:\n", tuple(map(_common_error, pattern.common_errors))),
        _Section("syntax", "Syntax:\n", (_fenced("", syntax),) if syntax else ()),
        _Section(
            "examples",
            "Examples:\n" if len(examples) > 1 else "Example:\n",
            tuple(filter(None, map(_example, examples))),
            between="\n\n",
        ),
        _Section("related patterns", "Related patterns:\n", (related,) if related else ()),
    ]


def _texts(sections: list[_Section]) -> list[str]:
    return [section.text(section.pieces) for section in sections if section.pieces]


def _fitted(sections: list[_Section], room: int) -> tuple[list[str], list[str]]:
    kept: dict[str, tuple[str, ...]] = {}
    # Parameters choose first, up to half of the room: a template whose placeholders nobody explains is of no use.
    for section in sorted(sections, key=lambda section: section.name != PARAMETERS):
        kept[section.name] = section.fitting((room // 2 if section.name == PARAMETERS else room) - 2)
        if kept[section.name]:
            room -= len(section.text(kept[section.name])) + 2
    missing = [
        f"{len(section.pieces) - len(kept[section.name]):,} of {len(section.pieces):,} {section.name}"
        if kept[section.name]
        else section.name
        for section in sections
        if len(kept[section.name]) < len(section.pieces)
    ]
    return [section.text(kept[section.name]) for section in sections if kept[section.name]], missing


def _left_out(pattern: Pattern, names: list[str]) -> str:
    asked = _plain(json.dumps(_id(pattern), ensure_ascii=False))
    return f"Left out here for length: {', '.join(names)}. load_pattern(id={asked}) gives the whole pattern."


def _filled(pattern: Pattern, values: Mapping[str, str]) -> tuple[Mapping[str, Template], list[str]]:
    """The templates with values, and remarks on values that are missing or unknown."""
    defaults = {each.name: each.default for each in pattern.parameters if each.default is not None}
    known = {**defaults, **values}
    templates = pattern.templates
    required = [each.name for each in pattern.parameters if each.is_required]
    required += [name for template in templates.values() for name in template.required_parameters]
    used = [name for template in templates.values() for name in placeholders(template.text)]
    declared = {each.name for each in pattern.parameters}
    remarks = [
        _named("Missing required parameters", [name for name in required if name not in known]),
        _named("Without a value", [name for name in used if name not in known and name not in required]),
        _named("Not parameters of this pattern", [name for name in values if name not in declared.union(used)]),
    ]
    longest = max(map(len, known.values()), default=0)
    if sum(len(each.text) + each.text.count("{{") * longest for each in templates.values()) > FILLED_CHARS:
        remarks.append(f"The templates are not filled: they could have more than {FILLED_CHARS:,} characters.")
    else:
        templates = {name: replace(each, text=fill(each.text, known)) for name, each in templates.items()}
    return templates, [line for line in remarks if line]


def _named(what: str, names: list[str]) -> str:
    return f"{what}: {', '.join(map(_line, dict.fromkeys(names)))}." if names else ""


def _begin(pattern: Pattern, attributes: str) -> str:
    return f'<pattern id="{escape(_id(pattern))}"{attributes}>'


def _block(begin: str, parts: list[str]) -> str:
    body = "\n\n".join(part for part in parts if part)
    return f"{begin}\n\n{defused(body)}\n</pattern>"  # two parts could be a tag together


def _id(pattern: Pattern) -> str:
    return one_line(pattern.id, ID_CHARS)


def _title(pattern: Pattern) -> str:
    return _prose(one_line(pattern.title) or one_line(pattern.name) or _id(pattern))


def _templates(pattern: Pattern, templates: Mapping[str, Template]) -> Iterator[str]:
    for name, template in templates.items():
        text = _plain(template.text).strip("\n")
        backend = pattern.backend_type.lower()
        is_sql = backend in _SQL or (backend not in _NOT_SQL and _SQL_BEGINS.match(text) is not None)
        code = _fenced("sql" if is_sql else "", text)
        about = [
            _line(template.description),
            _labelled("Needs: ", ", ".join(template.required_parameters)),
            _labelled("Gives: ", template.output_format),
        ]
        sentences = " ".join(each if each.endswith((".", "!", "?")) else f"{each}." for each in about if each)
        yield f"Template {_line(name)}:\n{code}" + (f"\n{_prose(sentences)}" if sentences else "")


def _fenced(language: str, code: str) -> str:
    ticks = max((len(run) for run in re.findall(r"`{3,}", code)), default=2) + 1
    fence = "`" * ticks
    return f"{fence}{language}\n{code}\n{fence}"


def _parameter(parameter: Parameter) -> str:
    facts = [_line(parameter.type)]
    if parameter.is_required:
        facts.append("required")
    if parameter.default is not None:
        facts.append(f"default {_line(parameter.default)}")
    about = [_line(parameter.description), _labelled("Example: ", parameter.example)]
    text = " ".join(each for each in about if each)
    return f"- {_line(parameter.name)} ({', '.join(facts)})" + (f": {text}" if text else "")


def _common_error(error: CommonError) -> str:
    about = [_labelled("Cause: ", error.cause), _labelled("What helps: ", error.solution)]
    return " ".join([f"- {_line(error.error)}", *(each for each in about if each)])


def _example(example: Example) -> str:
    parameters = json.dumps(example.parameters, ensure_ascii=False, default=str) if example.parameters else ""
    result = _prose(example.expected_result)
    parts = [
        _prose(_line(example.name)),
        _prose(example.description),
        _labelled("Parameters: ", parameters),
        f"Result: {result}" if result else "",
        _labelled("Notes: ", example.notes),
    ]
    return "\n".join(part for part in parts if part)


def _labelled(label: str, text: str) -> str:
    shown = _line(text)
    return f"{label}{shown}" if shown else ""


def _line(text: str) -> str:
    return " ".join(_plain(text).split())


def _prose(text: str) -> str:
    return _LOOKALIKE.sub("    ", _plain(text).strip())  # stripped first, or the four spaces would go again


def _plain(text: str) -> str:
    """Text without invisible characters and without the tags of our blocks, with uniform line ends."""
    return defused(_LINE_END.sub("\n", clean(text)))
