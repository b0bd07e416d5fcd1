"""What is wrong with a pattern library, and what would make it better, each with file and line."""

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from loom_worker.core.fields import Place
from loom_worker.core.text import did_you_mean, one_line
from loom_worker.core.values.patterns import Pattern
from loom_worker.patterns import aliases
from loom_worker.patterns.aliases import Keys, sort
from loom_worker.patterns.library import (
    MAX_PROBLEM_CHARS,
    MOST_PROBLEMS,
    library_files,
    read,
    repeated,
    root_error,
    unlisted,
)
from loom_worker.patterns.library_entries import Unit
from loom_worker.patterns.render import MOST_CHARS, fill, placeholders

LintWarning = tuple[Place, str, str]
"""The place within the pattern, what is wrong, and what to do."""

_PARTS: Mapping[str, Keys] = {
    "parameters": aliases.PARAMETER,
    "templates": aliases.TEMPLATE,
    "examples": aliases.EXAMPLE,
    "common_errors": aliases.COMMON_ERROR,
}
_DIRECTIVE = re.compile(r"\{\{-?\s*(?:(?:if|range|with|for|each)\s|[#/])[^}]*\}\}|\{%[^%]*%\}")
"""Conditions and loops of the template engines of other systems."""

DIALECTS: dict[str, tuple[str | None, ...]] = {
    "sql": (None, "sqlite", "postgres", "mysql", "duckdb"),
    "sqlite": ("sqlite",),
    "postgresql": ("postgres",),
    "mysql": ("mysql",),
    "mariadb": ("mysql",),
    "duckdb": ("duckdb",),
}
"""sqlglot's dialects for each ``backend_type`` with SQL templates; one that accepts a template is enough."""

_NUMBERS = ("int", "num", "float", "dec", "double", "real")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The other patterns, as far as one of them depends on them."""

    ids: frozenset[str]
    names: frozenset[str]
    """The ends of ids, each of which may stand for the whole id."""
    first_with: dict[str, str]
    """Each intent, in lower case, with the id of the first pattern that has it."""

    @classmethod
    def of(cls, patterns: Sequence[Pattern], others: Iterable[str] = ()) -> "Surroundings":
        """How a library's patterns depend on each other; ``others`` are ids of patterns elsewhere."""
        ids = frozenset((*(pattern.id for pattern in patterns), *others))
        ends = frozenset(pattern_id.split("/", n)[n] for pattern_id in ids for n in range(pattern_id.count("/") + 1))
        first: dict[str, str] = {}
        for pattern in patterns:
            for intent in pattern.intents:
                first.setdefault(_same(intent), pattern.id)
        return cls(ids, ends, first)


def warnings(unit: Unit, pattern: Pattern, library: Surroundings) -> Iterator[LintWarning]:
    """All warnings about one pattern of a library."""
    yield from _of_mapping(unit.body, (), aliases.PATTERN)
    fields = sort(unit.body, aliases.PATTERN)
    written = fields.written
    for part, keys in _PARTS.items():
        for place, body in _bodies(fields.values.get(part), (written.get(part, part),), keys):
            yield from _of_mapping(body, place, keys)
    if not pattern.description:
        yield ("name",), "no description", "it will hardly be found; say in a sentence what it is for"
    if not pattern.intents:
        yield ("name",), "no intents", "it will hardly be found; give four or more things that people say who need it"
    if pattern.difficulty and pattern.difficulty not in aliases.DIFFICULTIES:
        place = (written.get("difficulty", "difficulty"),)
        yield place, f"difficulty {pattern.difficulty} is not known", f"one of {', '.join(aliases.DIFFICULTIES)}"
    if pattern.backend_type and pattern.backend_type not in aliases.BACKENDS:
        advice = f"one of {', '.join(aliases.BACKENDS)}; nothing, if it works on anything"
        place = (written.get("backend_type", "backend_type"),)
        yield place, f"backend_type {pattern.backend_type} is not known", advice
    for n, other in enumerate(pattern.related_patterns):
        place_of_other = (written.get("related_patterns", ""), n)
        if other not in library.names:
            advice = did_you_mean(other, library.names) or "related_patterns are ids, such as sql/top_n"
            yield place_of_other, f"there is no pattern {other}", advice
        elif other == pattern.id:
            yield place_of_other, "it is related to itself", "remove it"
    for n, intent in enumerate(pattern.intents):
        first = library.first_with[_same(intent)]
        if first != pattern.id:
            what = f"{first} has the intent {intent!r} as well"
            yield (written.get("intents", ""), n), what, "it does not distinguish them"
    yield from _of_parameters(pattern, unit, written.get("parameters", "parameters"))
    yield from _of_templates(pattern, unit, written.get("templates", "templates"))


def _of_mapping(body: Mapping[Any, Any], place: Place, keys: Keys) -> Iterator[LintWarning]:
    """Warn of unknown keys, with the nearest known one, and of a key's other name where the key is there as well."""
    fields = sort(body, keys)
    for key in fields.extra:
        if key in fields.overruled:
            winner = fields.overruled[key]
            advice = f"put all of it under {winner}, and remove {key}"
            yield (*place, key), f"{key} is another name of {winner}, which is there as well and counts", advice
        else:
            near = did_you_mean(key.lower(), aliases.all_names(keys), least=0.75)
            advice = near or "it is kept, and has no effect"
            yield (*place, key), f"unknown key {key}", advice


def _bodies(value: Any, place: Place, keys: Keys) -> Iterator[tuple[Place, Mapping[Any, Any]]]:
    if isinstance(value, dict) and not any(isinstance(inside, dict) for inside in value.values()):
        if any(aliases.is_known(key, keys) for key in value):
            yield place, value
        return
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, body in entries:
        if isinstance(body, dict) and (len(body) > 1 or any(aliases.is_known(known, keys) for known in body)):
            yield (*place, key), body


def _there(unit: Unit, part: str, *keys: str | int) -> Place:
    """The first of these places in a part that the file has; parts may be lists or mappings of names."""
    places = [(part, key) for key in keys]
    has = (place for place in places if any(unit.document.line_of(*root, *place) is not None for root in unit.roots))
    return next(has, places[-1])


def _of_parameters(pattern: Pattern, unit: Unit, part: str) -> Iterator[LintWarning]:
    used = {name for template in pattern.templates.values() for name in placeholders(template.text)}
    directives = " ".join(each for template in pattern.templates.values() for each in _DIRECTIVE.findall(template.text))
    inside = set(re.findall(r"\w+", directives))
    for n, parameter in enumerate(pattern.parameters):
        place = _there(unit, part, n, parameter.name)
        if parameter.name not in used | inside:
            advice = f"write {{{{{parameter.name}}}}} into a template, or remove it"
            yield place, f"no template uses the parameter {parameter.name}", advice
        if parameter.is_required and parameter.default is not None:
            yield place, f"{parameter.name} is required and has a default", "keep one of the two"


def _of_templates(pattern: Pattern, unit: Unit, part: str) -> Iterator[LintWarning]:
    names = {parameter.name for parameter in pattern.parameters}
    for n, (name, template) in enumerate(pattern.templates.items()):
        place = _there(unit, part, name, n)
        for missing in placeholders(template.text):
            if missing not in names:
                yield place, f"template {name}: {{{{{missing}}}}} is no parameter", f"add a parameter {missing}"
        for unknown in template.required_parameters:
            if unknown not in names:
                yield place, f"template {name} requires {unknown}, which is no parameter", f"add a parameter {unknown}"
        if len(template.text) > MOST_CHARS:
            what = f"template {name} has {len(template.text):,} characters, more than {MOST_CHARS:,}"
            yield place, f"{what} do not fit next to a message", "make two of it"
        if _DIRECTIVE.search(template.text):
            advice = "only {{name}} and {{.name}} are filled in; all else stays as it is"
            yield place, f"template {name} holds {_DIRECTIVE.findall(template.text)[0]}", advice
        elif pattern.backend_type in DIALECTS and (error := sql_error(template.text, pattern)):
            yield (
                place,
                f"template {name} is no SQL once it is filled in: {error}",
                "give defaults or examples that fit",
            )


def _same(intent: str) -> str:
    return " ".join(intent.casefold().split())


def sql_error(template: str, pattern: Pattern) -> str:
    """Why no dialect of the pattern's backend accepts a template, in one line; empty if one does."""
    first = ""
    for is_bare in (False, True):  # first with defaults and examples, then with what fits everywhere
        values = {}
        for parameter in pattern.parameters:
            given = parameter.default if parameter.default is not None else parameter.example
            fits = "1" if parameter.type.lower().startswith(_NUMBERS) else parameter.name
            values[parameter.name] = fits if is_bare else given or fits
        filled = fill(template, {**{name: name for name in placeholders(template)}, **values})
        for dialect in DIALECTS[pattern.backend_type]:
            error = _parse_error(filled, dialect)
            if not error:
                return ""
            first = first or error
    return first


def _parse_error(sql: str, dialect: str | None) -> str:
    from sqlglot import ErrorLevel, parse
    from sqlglot.errors import ParseError, SqlglotError

    logger = logging.getLogger("sqlglot")
    was, logger.disabled = logger.disabled, True  # it warns of statements such as EXPLAIN, which it parses in part
    try:
        statements = parse(sql, read=dialect, error_level=ErrorLevel.IMMEDIATE)
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        return f"{first.get('description', 'not readable')} at its line {first.get('line', 1)}"
    except (SqlglotError, RecursionError) as error:
        return str(error).splitlines()[0][:120]
    finally:
        logger.disabled = was
    return "" if any(statements) else "there is no statement in it"


_WHAT_CHARS, _ADVICE_CHARS = 300, 100

Level = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class LintFinding:
    """One error or warning."""

    path: Path
    line: int
    """Line of the key it is about, from 1."""
    level: Level
    """error: the pattern, or its file, is left out · warning: it loads, and something in it has no effect."""
    what: str
    advice: str = ""

    def __str__(self) -> str:
        text = f"{self.path}:{self.line}: {'problem' if self.level == 'error' else self.level}: {self.what}"
        return one_line(f"{text} ({self.advice})" if self.advice else text, MAX_PROBLEM_CHARS)


def lint(root: Path, *, others: Iterable[str] = ()) -> tuple[LintFinding, ...]:
    """Check every pattern file under a folder: all that ``load`` leaves out, and warnings; by file and line.

    Args:
        others: ids of patterns from elsewhere, which may be named as related.

    Of a file with more than ``MOST_PROBLEMS`` errors, or warnings, the first are listed and the others counted.
    """
    if error := root_error(root):
        return (LintFinding(root, 1, "error", error),)
    found: list[LintFinding] = []
    loaded: dict[str, tuple[Path, Unit, Pattern]] = {}
    for path in library_files(root):
        units, problems = read(path, root)
        found += [_finding(problem.path, problem.line, "error", problem.reason) for problem in problems]
        for unit, pattern in units:
            if pattern.id in loaded:
                what = repeated(pattern, loaded[pattern.id][2])
                found.append(_finding(path, pattern.line, "error", what, "give it another name"))
            else:
                loaded[pattern.id] = (path, unit, pattern)
    library = Surroundings.of([pattern for _, _, pattern in loaded.values()], others)
    for path, unit, pattern in loaded.values():
        for place, what, advice in warnings(unit, pattern, library):
            found.append(_finding(path, unit.line_of(place), "warning", what, advice))
    found.sort(key=lambda finding: (str(finding.path), finding.line))
    return tuple(each for _, of_file in groupby(found, key=lambda finding: finding.path) for each in _bounded(of_file))


def _finding(path: Path, line: int, level: Level, what: str, advice: str = "") -> LintFinding:
    return LintFinding(path, line, level, one_line(what, _WHAT_CHARS), one_line(advice, _ADVICE_CHARS))


def _bounded(of_file: Iterable[LintFinding]) -> Iterator[LintFinding]:
    counts: dict[Level, int] = {}
    for finding in of_file:
        counts[finding.level] = counts.get(finding.level, 0) + 1
        if counts[finding.level] <= MOST_PROBLEMS:
            yield finding
    for level, count in counts.items():
        if count > MOST_PROBLEMS:
            yield LintFinding(finding.path, 1, level, unlisted(count))
