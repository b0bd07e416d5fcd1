"""Remarks on what a pattern says: what it lacks to be found, what its templates and parameters leave open."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from loom_worker.core.values.patterns import Pattern
from loom_worker.patterns import aliases
from loom_worker.patterns.aliases import sort
from loom_worker.patterns.fields import Place
from loom_worker.patterns.library_entries import Unit
from loom_worker.patterns.lint_keys import Remark
from loom_worker.patterns.lint_sql import DIALECTS, trouble
from loom_worker.patterns.render import MOST_CHARS, placeholders

_DIRECTIVE = re.compile(r"\{\{-?\s*(?:(?:if|range|with|for|each)\s|[#/])[^}]*\}\}|\{%[^%]*%\}")
"""Conditions and loops of the template engines of other systems."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The other patterns, as far as one of them depends on them."""

    ids: frozenset[str]
    names: frozenset[str]
    """What may stand for an id: the end of one, from its name on."""
    first_with: dict[str, str]
    """Each intent, in small letters, with the id of the first pattern that has it."""

    @classmethod
    def of(cls, patterns: Sequence[Pattern], others: Iterable[str] = ()) -> "Surroundings":
        """What a library's patterns are to each other; ``others`` are ids of patterns elsewhere."""
        ids = frozenset((*(pattern.id for pattern in patterns), *others))
        ends = frozenset(pattern_id.split("/", n)[n] for pattern_id in ids for n in range(pattern_id.count("/") + 1))
        first: dict[str, str] = {}
        for pattern in patterns:
            for intent in pattern.intents:
                first.setdefault(_same(intent), pattern.id)
        return cls(ids, ends, first)


def of_pattern(unit: Unit, pattern: Pattern, library: Surroundings) -> Iterator[Remark]:
    """Remark on one pattern of a library."""
    written = sort(unit.body, aliases.PATTERN).written
    yield from _found(pattern)
    yield from _words(pattern, written.get("difficulty", ""), written.get("backend_type", ""))
    yield from _others(
        pattern, library, related=written.get("related_patterns", ""), intents=written.get("intents", "")
    )
    at = _Places(unit, written.get("parameters", "parameters"), written.get("templates", "templates"))
    yield from _parameters(pattern, at)
    yield from _templates(pattern, at)


def _found(pattern: Pattern) -> Iterator[Remark]:
    if not pattern.description:
        yield ("name",), "no description", "it will hardly be found; say in a sentence what it is for"
    if not pattern.intents:
        yield ("name",), "no intents", "it will hardly be found; give four or more things that people say who need it"


def _words(pattern: Pattern, difficulty: str, backend: str) -> Iterator[Remark]:
    if pattern.difficulty and pattern.difficulty not in aliases.DIFFICULTIES:
        advice = f"one of {', '.join(aliases.DIFFICULTIES)}"
        yield (difficulty or "difficulty",), f"difficulty {pattern.difficulty} is not known", advice
    if pattern.backend_type and pattern.backend_type not in aliases.BACKENDS:
        advice = f"one of {', '.join(aliases.BACKENDS)}; nothing, if it works on anything"
        yield (backend or "backend_type",), f"backend_type {pattern.backend_type} is not known", advice


def _others(pattern: Pattern, library: Surroundings, *, related: str, intents: str) -> Iterator[Remark]:
    for n, other in enumerate(pattern.related_patterns):
        if other not in library.names:
            yield (related, n), f"there is no pattern {other}", "related_patterns are ids, such as sql/top_n"
        elif other == pattern.id:
            yield (related, n), "it is related to itself", "remove it"
    for n, intent in enumerate(pattern.intents):
        first = library.first_with[_same(intent)]
        if first != pattern.id:
            yield (intents, n), f"{first} has the intent {intent!r} as well", "neither can be told from the other by it"


@dataclass(frozen=True, slots=True)
class _Places:
    """Where the parameters and templates of a unit stand, whichever form they have."""

    unit: Unit
    parameters: str
    templates: str

    def parameter(self, n: int, name: str) -> Place:
        return self._either((self.parameters, n), (self.parameters, name))

    def template(self, n: int, name: str) -> Place:
        return self._either((self.templates, name), (self.templates, n))

    def _either(self, one: Place, other: Place) -> Place:
        there = any(self.unit.document.line_of(*root, *one) is not None for root in self.unit.roots)
        return one if there else other


def _parameters(pattern: Pattern, at: _Places) -> Iterator[Remark]:
    used = {name for template in pattern.templates.values() for name in placeholders(template.text)}
    inside = {
        name for template in pattern.templates.values() for name in re.findall(r"\w+", _directives(template.text))
    }
    for n, parameter in enumerate(pattern.parameters):
        place = at.parameter(n, parameter.name)
        if parameter.name not in used | inside:
            advice = f"write {{{{{parameter.name}}}}} into a template, or remove it"
            yield place, f"no template uses the parameter {parameter.name}", advice
        if parameter.is_required and parameter.default is not None:
            yield place, f"{parameter.name} is required and has a default", "keep one of the two"


def _templates(pattern: Pattern, at: _Places) -> Iterator[Remark]:
    names = {parameter.name for parameter in pattern.parameters}
    for n, (name, template) in enumerate(pattern.templates.items()):
        place = at.template(n, name)
        for missing in placeholders(template.text):
            if missing not in names:
                yield place, f"template {name}: {{{{{missing}}}}} is no parameter", f"add a parameter {missing}"
        for unknown in template.required_parameters:
            if unknown not in names:
                yield place, f"template {name} requires {unknown}, which is no parameter", f"add a parameter {unknown}"
        if len(template.text) > MOST_CHARS:
            what = f"template {name} has {len(template.text):,} characters, more than {MOST_CHARS:,}"
            yield place, f"{what} do not fit beside a message", "make two of it"
        if _DIRECTIVE.search(template.text):
            advice = "only {{name}} and {{.name}} are filled in; all else stays as it is"
            yield place, f"template {name} holds {_DIRECTIVE.findall(template.text)[0]}", advice
        elif pattern.backend_type in DIALECTS and (told := trouble(template.text, pattern)):
            yield place, f"template {name} is no SQL once it is filled in: {told}", "give defaults or examples that fit"


def _directives(text: str) -> str:
    return " ".join(_DIRECTIVE.findall(text))


def _same(intent: str) -> str:
    return " ".join(intent.casefold().split())
