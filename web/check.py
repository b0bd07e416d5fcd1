"""What clients send, checked by pydantic's models: every flaw at once, in words of ours that never repeat a value."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any, Literal, Union

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    GetCoreSchemaHandler,
    Tag,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from loom_worker.core.errors import Flaw
from loom_worker.core.values.json import Json, from_rfc3339, pointer_step
from web.schemas import TIME, Schema

MAX_FLAWS = 100
"""A body may hold a hundred thousand unknown fields; nobody reads more than this."""
_LONGEST_NAME = 64
NOT_BLANK = r"\S"
IDENTIFIER = r"^[A-Za-z0-9._-]{1,128}$(?!\n)"
"""Python's ``$`` also matches before a last line break; what follows it says no, and means nothing elsewhere."""
SESSION_ID = r"^(?!\.{1,2}$)[A-Za-z0-9._-]{1,128}$(?!\n)"
"""``.`` and ``..`` are steps of a path: most clients take them out of it, and would never reach such a session."""
VERSIONED = r"^[A-Za-z0-9._-]{1,128}@[A-Za-z0-9._+-]{1,64}$(?!\n)"
_PATTERNS = {
    NOT_BLANK: "must not be blank",
    IDENTIFIER: "must be 1 to 128 of A-Z a-z 0-9 . _ -",
    SESSION_ID: "must be 1 to 128 of A-Z a-z 0-9 . _ -, but neither . nor ..",
    VERSIONED: "must be the agent's name, followed by @ and a version, a label, or latest",
}
ABSENT: Any = None
"""Default of members that may be left out and yet not be null."""
_TAG = "\0"
"""Begins the tag of a union's choice; no name in a body has it, for bodies hold no NUL."""
_WORDS: Mapping[str, tuple[str, str]] = {
    "string_too_long": ("maxLength", "must have at most {} characters"),
    "string_too_short": ("minLength", "must have {} or more characters"),
    "too_short": ("minItems", "must have {} or more items"),
    "too_long": ("maxItems", "must have at most {} items"),
    "dict_too_long": ("maxProperties", "must have at most {} members"),
    "greater_than_equal": ("minimum", "must be at least {}"),
    "greater_than": ("exclusiveMinimum", "must be more than {}"),
    "less_than_equal": ("maximum", "must be at most {}"),
}
"""By pydantic's kind of an error: the keyword of JSON Schema that asks for something, and for what."""
UNIQUE = {"uniqueItems": True}
"""What the schema of a body's list says that names nothing twice."""


class Model(BaseModel):
    """A JSON object that has no members but its fields."""

    model_config = ConfigDict(strict=True, extra="forbid", regex_engine="python-re")

    @model_validator(mode="before")
    @classmethod
    def _bounded(cls, given: Any) -> Any:
        """The same with no more unknown members than are told: pydantic words an error for each."""
        if not isinstance(given, dict) or len(given) <= len(cls.model_fields) + MAX_FLAWS:
            return given
        known = {field.alias or name for name, field in cls.model_fields.items()}
        unknown = islice((name for name in given if name not in known), MAX_FLAWS)
        return {name: given[name] for name in (*(name for name in known if name in given), *unknown)}


@dataclass(frozen=True, slots=True)
class Given:
    """Checks a member as one type, and makes its value of the JSON itself, or of what the check made of that."""

    kind: Any
    value: Callable[[Any], Any] = lambda given: given
    of_checked: bool = False

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """As pydantic asks for it."""
        return core_schema.no_info_wrap_validator_function(
            lambda given, check: self.value(check(given)) if self.of_checked else (check(given), self.value(given))[1],
            handler.generate_schema(self.kind),
        )


def word_of(words: tuple[str, ...]) -> Given:
    """Checks that a text is one of some words."""
    return Given(Literal.__getitem__(words))


def any_of(**choices: Any) -> Any:
    """A type of values that may be of several types of JSON, each with rules of its own.

    Args:
        choices: by ``object``, ``array``, ``string``, ``number`` or ``boolean``.
    """
    tagged = tuple(Annotated[kind, Tag(_TAG + name)] for name, kind in choices.items())
    return Annotated[Union.__getitem__(tagged), Discriminator(_tag)]


def _tag(given: object) -> str:
    names = {dict: "object", list: "array", str: "string", bool: "boolean", int: "number", float: "number"}
    return _TAG + names.get(type(given), "other")


def flawed(detail: str) -> PydanticCustomError:
    """The error of a validator of ours; its text is shown to clients as it is."""
    return PydanticCustomError("flaw", "{detail}", {"detail": detail})


def moment_ms(given: str) -> int:
    """A time of RFC 3339 in milliseconds since 1970, for validators."""
    found = from_rfc3339(given)
    if found is None:
        raise flawed("must be a time such as 2027-01-31T12:00:00Z")
    return found


Moment = Annotated[int, Given(Annotated[str, WithJsonSchema(TIME)], moment_ms)]


def flaws_of(error: ValidationError, schema: Schema) -> tuple[Flaw, ...]:
    """What is wrong, one flaw for each place and MAX_FLAWS at most."""
    found: dict[str, Flaw] = {}
    for each in error.errors(include_url=False, include_context=False, include_input=False):
        place = [step for step in each["loc"] if not str(step).startswith(_TAG)]
        pointer = "".join(f"/{pointer_step(str(step)[:_LONGEST_NAME])}" for step in place)
        if pointer not in found:
            found[pointer] = Flaw(pointer, _words(each["type"], each["msg"], place, schema))
        if len(found) == MAX_FLAWS:
            break
    return tuple(found.values())


def repeated(given: Json, schema: Schema) -> Iterator[Flaw]:
    """Lists of a body that name something twice, where its schema forbids it."""
    for name in (name for name, member in schema["properties"].items() if "uniqueItems" in member):
        items = given.get(name)
        if isinstance(items, list) and len({json.dumps(item) for item in items}) < len(items):
            yield Flaw(f"/{name}", "must name nothing twice")


def _words(kind: str, message: str, place: Iterable[str | int], schema: Schema) -> str:
    """What is expected at a place, as the schema has it."""
    parent = schema
    for step in place:
        parent, schema = schema, _inside(schema, step)
    match kind:
        case "flaw":
            return message
        case "missing":
            return "is required"
        case "extra_forbidden":
            known = parent.get("properties")
            return f"unknown field; known are {', '.join(known)}" if known else "unknown field; none is expected"
        case "string_pattern_mismatch":
            return expected_of(schema["pattern"])
        case "literal_error":
            return f"expected one of {', '.join('null' if each is None else each for each in schema['enum'])}"
        case "string_too_short" if schema["minLength"] == 1:
            return "must not be empty"
        case "too_long" if "maxItems" not in schema:
            kind = "dict_too_long"
    if kind in _WORDS:
        keyword, words = _WORDS[kind]
        return words.format(schema[keyword])
    types = schema.get("type", "another value")
    return f"expected {types if isinstance(types, str) else ' or '.join(types)}"


def _inside(schema: Schema, step: str | int) -> Schema:
    if isinstance(step, int):
        return dict(schema.get("items", {}))
    return dict(schema.get("properties", {}).get(step) or schema.get("additionalProperties") or {})


def expected_of(pattern: str) -> str:
    """What a pattern asks for."""
    return _PATTERNS.get(pattern, f"must match {pattern}")
