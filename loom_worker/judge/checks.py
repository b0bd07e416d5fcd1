"""Judges that follow a rule: texts that must occur, a pattern, a JSON Schema. Pure.

What is compared is the answer alone; no text in it can change what is looked for, and one that makes the look last too
long does not pass. Patterns are searched by the package ``regex``, which ends at a deadline and lets other threads run
meanwhile: ``re`` could be kept busy for hours by a pattern with nested repetitions, and would stop the whole process
with it. An answer of forty characters can make a recursive schema take minutes and gigabytes: ``fits`` is for a child
process (python_judges.py).
"""

import json
import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import regex
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError, best_match
from jsonschema.validators import extend
from referencing import Registry
from referencing.exceptions import Unresolvable

from loom_worker.core.errors import BadSettings
from loom_worker.core.values.json import Json
from loom_worker.tools.arguments import check_references, pointer

log = logging.getLogger(__name__)

PATTERN_S = 1.0
"""For one search; what was not found by then counts as not found."""
_BLANKS = re.compile(r"\s+")
_BLOCK = re.compile(r"\s*```[a-zA-Z]*\n(.*?)\n?```\s*", re.DOTALL)
"""An answer that is nothing but one block of code."""


@dataclass(frozen=True, slots=True)
class Opinion:
    """What a judge makes of an answer."""

    score: float | None
    """0-1; None only where it is undecided, cannot tell, and that is not to count."""
    critique: str = ""
    """What is to be mended."""
    is_undecided: bool = False


def contains(answer: str, criteria: Json) -> Opinion:
    """The share of texts that occur as they must, without regard to case and to the kind of white space.

    Args:
        criteria: ``{all, any, none}``, each a list of texts; of ``any`` one must occur, of ``none`` no one.
    """
    text = _folded(answer)
    missing = [each for each in criteria.get("all", ()) if _folded(each) not in text]
    found = [each for each in criteria.get("none", ()) if _folded(each) in text]
    choices = criteria.get("any", ())
    lacks_choice = bool(choices) and not any(_folded(each) in text for each in choices)
    flaws = [
        *(f"{each!r} is missing" for each in missing),
        *(f"{each!r} must not occur" for each in found),
        *([f"one of {', '.join(map(repr, choices))} is missing"] if lacks_choice else []),
    ]
    conditions = len(criteria.get("all", ())) + len(criteria.get("none", ())) + bool(choices)
    return Opinion((conditions - len(flaws)) / conditions, "; ".join(flaws))


def matches(answer: str, patterns: Sequence[str]) -> Opinion:
    """The share of patterns that are found somewhere in an answer."""
    missing = [pattern for pattern in patterns if not _is_found(pattern, answer)]
    critique = "; ".join(f"nothing matches the pattern {pattern}" for pattern in missing)
    return Opinion((len(patterns) - len(missing)) / len(patterns), critique)


def compiled(pattern: str) -> "regex.Pattern[str]":
    """A pattern in the syntax of the package ``regex``; BadSettings: it is none."""
    try:
        return regex.compile(pattern)
    except regex.error as error:
        raise BadSettings(f"not a regular expression: {error}") from error


def fits(answer: str, schema: Json) -> Opinion:
    """1 for an answer that is JSON and fits a schema, 0 for any other; one block of code may hold the JSON."""
    block = _BLOCK.fullmatch(answer)
    try:
        value = json.loads(block[1] if block else answer, parse_constant=_no_constant)
        wrong = best_match(validator(json.dumps(schema)).iter_errors(value))
    except (ValueError, ArithmeticError, RecursionError, MemoryError) as error:
        return Opinion(0.0, f"the answer must be JSON and nothing else: {error}")
    return Opinion(1.0) if wrong is None else Opinion(0.0, f"{pointer(wrong)}: {wrong.message[:300]}")


@lru_cache(maxsize=256)
def validator(schema: str) -> Any:
    """The validator of a schema, given as JSON; it fetches nothing, and its patterns are searched as ``matches`` does.

    Raises:
        BadSettings: it is no JSON Schema, refers to another one or to itself without end, or has
            ``patternProperties``.
    """
    content = json.loads(schema)
    if '"patternProperties"' in schema:
        raise BadSettings("patternProperties are not supported: name the properties, or use propertyNames")
    try:
        Draft202012Validator.check_schema(content)
        check_references(content)
    except SchemaError as error:
        raise BadSettings(f"not a JSON Schema, at {pointer(error)}: {error.message}") from error
    except Unresolvable as error:
        raise BadSettings(f"the schema refers to {error.ref!r}, which is not in it") from error
    for pattern in _patterns(content):
        compiled(pattern)
    made = _Bounded(content, registry=Registry())
    try:
        made.is_valid(None)
    except RecursionError as error:
        raise BadSettings("the schema refers to itself without end") from error
    return made


def _is_found(pattern: str, text: str) -> bool:
    try:
        return compiled(pattern).search(text, timeout=PATTERN_S, concurrent=True) is not None
    except TimeoutError:
        log.warning("a judge's pattern takes longer than %g s; write it without nested repetitions", PATTERN_S)
        return False


def _pattern(_validator: Any, pattern: str, instance: object, _schema: object) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not _is_found(pattern, instance):
        yield ValidationError(f"{instance[:80]!r} does not match {pattern!r}")


_Bounded: Any = extend(Draft202012Validator, {"pattern": _pattern})  # type: ignore[no-untyped-call]  # it has no types


def _patterns(schema: object) -> Iterator[str]:
    match schema:
        case dict():
            if isinstance(schema.get("pattern"), str):
                yield schema["pattern"]
            for value in schema.values():
                yield from _patterns(value)
        case list():
            for value in schema:
                yield from _patterns(value)


def _folded(text: str) -> str:
    return _BLANKS.sub(" ", text).casefold()


def _no_constant(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")
