"""A body against its schema: every flaw at once, in words of ours that never repeat what was sent."""

from collections.abc import Iterator
from typing import Any

from jsonschema import Draft202012Validator, ValidationError

from loom_worker.core.errors import Flaw
from loom_worker.core.values.json import Json, pointer_step
from web.request_schemas import IDENTIFIER, NOT_BLANK, SESSION_ID, VERSIONED
from web.schemas import Schema

MAX_FLAWS = 100
"""A body may hold a hundred thousand unknown fields; nobody reads more than this."""
_LONGEST_NAME = 64
_PATTERNS = {
    NOT_BLANK: "must not be blank",
    IDENTIFIER: "must be 1 to 128 of A-Z a-z 0-9 . _ -",
    SESSION_ID: "must be 1 to 128 of A-Z a-z 0-9 . _ -, but neither . nor ..",
    VERSIONED: "must be the agent's name, followed by @ and a version, a label, or latest",
}


class Checker:
    """A schema, ready to check bodies; safe to share between threads."""

    def __init__(self, schema: Schema) -> None:
        self._validator = Draft202012Validator(schema)

    def flaws(self, body: Json) -> tuple[Flaw, ...]:
        """What is wrong with the body, one flaw for each place; empty if nothing is."""
        found: dict[str, Flaw] = {}
        for error in self._validator.iter_errors(body):
            for flaw in _flaws(error):
                found.setdefault(flaw.pointer, flaw)
            if len(found) >= MAX_FLAWS:
                break
        return tuple(found.values())[:MAX_FLAWS]


def _flaws(error: ValidationError) -> Iterator[Flaw]:
    where = "".join(f"/{_escaped(part)}" for part in error.absolute_path)
    instance: Any = error.instance
    match error.validator:
        case "additionalProperties":
            known = error.schema["properties"] if isinstance(error.schema, dict) else {}
            detail = f"unknown field; known are {', '.join(known)}" if known else "unknown field; none is expected"
            unknown = [name for name in instance if name not in known][:MAX_FLAWS]
            yield from (Flaw(f"{where}/{_escaped(name)}", detail) for name in unknown)
        case "required":
            names: Any = error.validator_value
            yield from (Flaw(f"{where}/{name}", "is required") for name in names if name not in instance)
        case _:
            yield Flaw(where, _expected(str(error.validator), error.validator_value))


def _expected(keyword: str, value: Any) -> str:
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
        case "uniqueItems":
            return "must name nothing twice"
        case "minimum":
            return f"must be at least {value}"
        case "exclusiveMinimum":
            return f"must be more than {value}"
        case "maximum":
            return f"must be at most {value}"
        case _:
            return f"breaks {keyword} of the schema"


def _escaped(part: object) -> str:
    """A step of a JSON pointer (RFC 6901), cut where a client named a field with a whole page."""
    return pointer_step(str(part)[:_LONGEST_NAME])
