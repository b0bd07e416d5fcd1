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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import regex
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, best_match
from jsonschema.validators import extend
from referencing import Registry
from referencing.exceptions import Unresolvable

from loom_worker.backends.tool_schemas import sent
from loom_worker.core.errors import BadSettings, LoomError
from loom_worker.core.fields import Fields, InvalidField
from loom_worker.core.text import without_middle
from loom_worker.core.values.json import Json, strict_json
from loom_worker.tools.arguments import check_references, pointer

log = logging.getLogger(__name__)

PATTERN_S = 1.0
"""For one search; what was not found by then counts as not found."""
_BLANKS = re.compile(r"\s+")
_BLOCK = re.compile(r"\s*```[a-zA-Z]*\n(.*?)\n?```\s*", re.DOTALL)
"""An answer that is nothing but one block of code."""
MOST_SCHEMA_BYTES = 64 * 1024


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
    try:
        value = strict_json(unfenced(answer))
    except (ValueError, MemoryError) as error:
        return Opinion(0.0, f"the answer must be JSON and nothing else: {without_middle(str(error), 200)}")
    try:
        wrong = best_match(validator(json.dumps(schema)).iter_errors(value))
    except (LoomError, Unresolvable, ArithmeticError, RecursionError, MemoryError) as error:
        return Opinion(0.0, f"the answer cannot be checked: {without_middle(str(error), 200)}")
    if wrong is None:
        return Opinion(1.0)
    return Opinion(0.0, f"{without_middle(pointer(wrong), 60)}: {without_middle(wrong.message, 180)}")


def unfenced(answer: str) -> str:
    """The answer without the block of code in which some models put JSON, if it is nothing else."""
    block = _BLOCK.fullmatch(answer)
    return str(block[1]) if block else answer


def response_format(spec: Fields) -> Json | None:
    """The form that answers must have, as ``{name, schema}``; None: any text. InvalidField: it cannot be used.

    No rule of the schema is tried here, nor any pattern by ``regex``: either may take for ever.
    """
    if spec.get("response_format") is None:
        return None
    fields = spec.under("response_format")
    fields.required("type")
    fields.choice("type", ("json_schema",))
    name, schema = fields.text("name") or "answer", fields.get("schema")
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
        raise fields.invalid("name", "1 to 64 of A-Z a-z 0-9 _ -", name)
    try:
        if not isinstance(schema, dict) or schema.get("type") != "object":
            raise ValueError("the JSON Schema of an object is needed: with type: object at its root")
        text = json.dumps(schema, allow_nan=False)
        if len(text) > MOST_SCHEMA_BYTES:
            raise ValueError(f"a schema of at most {MOST_SCHEMA_BYTES} bytes is needed, not {len(text)}")
        _check_rules(schema, text, re.compile)
        sent(schema)  # as it is where a provider must be asked by a tool
    except (TypeError, ValueError, RecursionError, re.error, BadSettings) as error:
        raise InvalidField(fields.place_of("schema"), str(error)) from error
    return {"name": name, "schema": schema}


@lru_cache(maxsize=256)
def validator(schema: str) -> Any:
    """The validator of a schema, given as JSON; it fetches nothing, and its patterns are searched as ``matches`` does.

    Raises:
        BadSettings: it is no JSON Schema, refers to another one or to itself without end, or has
            ``patternProperties``.
    """
    content = json.loads(schema)
    _check_rules(content, schema, compiled)
    made = _Bounded(content, registry=Registry())
    try:
        made.is_valid(None)
    except RecursionError as error:
        raise BadSettings("the schema refers to itself without end") from error
    return made


def _check_rules(schema: Json, text: str, compile_: Callable[[str], object]) -> None:
    if wrong := next(_Rules(Draft202012Validator.META_SCHEMA).iter_errors(schema), None):
        raise BadSettings(f"not a JSON Schema, at {pointer(wrong)}: {without_middle(wrong.message, 180)}")
    if '"patternProperties"' in text:
        raise BadSettings("patternProperties are not supported: name the properties, or use propertyNames")
    try:
        check_references(schema)
    except Unresolvable as error:
        raise BadSettings(f"the schema refers to {error.ref!r}, which is not in it") from error
    for pattern in _patterns(schema):
        compile_(pattern)


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
_Rules: Any = extend(Draft202012Validator, {"uniqueItems": lambda *_: ()})  # type: ignore[no-untyped-call]  # likewise
"""For schemas of clients: to compare thousands of names of several types with each other takes minutes."""


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
