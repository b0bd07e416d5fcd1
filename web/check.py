"""What clients send, checked by pydantic's models: every flaw at once, in words of ours that never repeat a value."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationError,
    WithJsonSchema,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from loom_worker.core.errors import Flaw
from loom_worker.core.values.json import from_rfc3339, pointer_step
from web.schemas import TIME, Schema, schema_of_model

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
TAG = "\0"
"""Begins the tag of a union's choice; no name in a body has it, for bodies hold no NUL."""
_KEYWORDS = {
    "literal_error": "enum",
    "string_pattern_mismatch": "pattern",
    "string_too_long": "maxLength",
    "string_too_short": "minLength",
    "too_short": "minItems",
    "too_long": "maxItems",
    "greater_than_equal": "minimum",
    "greater_than": "exclusiveMinimum",
    "less_than_equal": "maximum",
}
"""Keywords of JSON Schema by pydantic's kinds of errors; all other kinds mean a wrong type."""


class Model(BaseModel):
    """A JSON object that has no members but its fields."""

    model_config = ConfigDict(strict=True, extra="forbid", regex_engine="python-re")


@dataclass(frozen=True, slots=True)
class Given:
    """Checks a member as one type, and makes its value of the JSON itself."""

    kind: Any
    value: Callable[[Any], Any] = lambda given: given

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """As pydantic asks for it."""
        return core_schema.no_info_wrap_validator_function(
            lambda given, check: (check(given), self.value(given))[1], handler.generate_schema(self.kind)
        )


def word_of(words: tuple[str, ...]) -> Given:
    """Checks that a text is one of some words."""
    return Given(Literal.__getitem__(words))


class Different:
    """Refuses a list that names something twice."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """As pydantic asks for it."""
        return core_schema.no_info_after_validator_function(_different, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """As pydantic asks for it."""
        return {**handler(schema), "uniqueItems": True}


def _different(names: list[str]) -> list[str]:
    if len(set(names)) < len(names):
        raise flawed("must name nothing twice")
    return names


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


@cache
def described_by(model: type[BaseModel]) -> Schema:
    """The schema of a model; made once."""
    return schema_of_model(model)


def flaws_of(error: ValidationError, schema: Schema) -> tuple[Flaw, ...]:
    """What is wrong, one flaw for each place and MAX_FLAWS at most."""
    found: dict[str, Flaw] = {}
    for each in error.errors(include_url=False, include_input=False):
        place = [step for step in each["loc"] if not str(step).startswith(TAG)]
        pointer = "".join(f"/{pointer_step(str(step)[:_LONGEST_NAME])}" for step in place)
        if pointer not in found:
            found[pointer] = Flaw(pointer, _words(each["type"], each["msg"], place, schema))
        if len(found) == MAX_FLAWS:
            break
    return tuple(found.values())


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
    keyword = _KEYWORDS.get(kind, "type")
    if keyword == "maxItems" and keyword not in schema:
        keyword = "maxProperties"
    return expected(keyword, schema.get(keyword))


def _inside(schema: Schema, step: str | int) -> Schema:
    if isinstance(step, int):
        return dict(schema.get("items", {}))
    return dict(schema.get("properties", {}).get(step) or schema.get("additionalProperties") or {})


def expected(keyword: str, value: Any) -> str:
    """What a keyword of JSON Schema asks for."""
    match keyword:
        case "type":
            return f"expected {' or '.join(value) if isinstance(value, list) else value}"
        case "enum":
            return f"expected one of {', '.join('null' if each is None else each for each in value)}"
        case "pattern":
            return _PATTERNS.get(value, f"must match {value}")
        case "maxLength":
            return f"must have at most {value} characters"
        case "minLength":
            return "must not be empty" if value == 1 else f"must have at least {value} characters"
        case "minItems":
            return f"must have {value} or more items"
        case "maxItems":
            return f"must have at most {value} items"
        case "maxProperties":
            return f"must have at most {value} members"
        case "minimum":
            return f"must be at least {value}"
        case "exclusiveMinimum":
            return f"must be more than {value}"
        case "maximum":
            return f"must be at most {value}"
        case _:
            return f"breaks {keyword} of the schema"
