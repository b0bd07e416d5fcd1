"""Converts a model's arguments to what the schema asks for where nothing is lost, and describes what remains wrong.

Models quote numbers, write JSON into a string and give a single value where a list is asked for. The validator's
errors guide the conversion, so it follows references and alternatives as the validator does.
"""

import copy
import json
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from itertools import pairwise
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError, best_match
from jsonschema.validators import extend
from referencing import Registry as SchemaRegistry
from referencing import Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from loom_worker.backends.tool_schemas import NAMED, SentSchema, Unfit, normal, sent
from loom_worker.core.errors import BadSettings
from loom_worker.core.text import REPLACEMENT, did_you_mean, short, storable
from loom_worker.core.values.chat import ToolSpec
from loom_worker.core.values.json import Json, pointer_step

MAX_DEPTH = 90
"""Objects and lists within each other; a request that holds the schema may have 100."""
_DATA = frozenset("const default enum examples example".split())
_Exact: Any = extend(  # type: ignore[no-untyped-call]  # the library has no types for it
    Draft202012Validator,
    type_checker=Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda _, value: type(value) is int),
)
"""JSON Schema accepts 3.0 as an integer; a Python tool does not, so here it is an error, which coercion repairs."""


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool as models are offered it."""

    spec: ToolSpec
    """As it is sent: no provider refuses it."""
    sent: SentSchema
    validator: Any
    """Checks arguments under the tool's own names; it never fetches a schema."""

    @property
    def change(self) -> str:
        """Where models see another tool than its author wrote; empty: nowhere."""
        told = [f"{own!r} is shown to models as {name}" for name, own in self.sent.own_names.items()]
        told += ["the alternatives at the top of its schema stand in its description"] if self.sent.alternatives else []
        return f"tool {self.spec.name!r}: {'; '.join(told)}" if told else ""


def offered(spec: ToolSpec) -> OfferedTool:
    """The one check of what providers take, for tools of every source.

    Raises:
        BadSettings: the name or the schema is invalid, and cannot be mended.
    """
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", spec.name):
        raise BadSettings(f"tool {spec.name!r}: a name is 1-64 of A-Z a-z 0-9 _ -")
    try:
        return _offered(spec.name, spec.description, json.dumps(spec.input_schema, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise BadSettings(f"tool {spec.name!r}: {error}") from error


@lru_cache(maxsize=1024)
def _offered(name: str, description: str, text: str) -> OfferedTool:
    """Checking a schema takes 7 ms, and agents have most of their tools in common."""
    schema, description = normal(_sendable(json.loads(text))), _sendable(description)
    try:
        Draft202012Validator.check_schema(schema)
        check_references(schema)
        found = sent(schema)
        check_references(found.schema)
    except SchemaError as error:
        raise BadSettings(f"tool {name!r}: invalid input schema at {pointer(error)}: {error.message[:200]}") from error
    except Unresolvable as error:
        raise BadSettings(f"tool {name!r}: the input schema refers to {error.ref!r}, which is not in it") from error
    if found.alternatives:
        description = f"{description}\nThe arguments must also fit this JSON Schema: {found.alternatives}".strip()
    # An empty registry: the default one would fetch foreign references from the network.
    validator = _Exact(schema, registry=SchemaRegistry())
    return OfferedTool(ToolSpec(name, description, found.schema), found, validator)


def _sendable(value: Any, depth: int = MAX_DEPTH) -> Any:
    """The value with U+FFFD for lone surrogates and NUL, with which the whole request would fail."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, dict | list) and depth == 0:
        raise Unfit(f"its input schema is nested more than {MAX_DEPTH} deep")
    if isinstance(value, dict):
        if unfit := [name for name in value if REPLACEMENT in _sendable(name)]:
            raise Unfit(f"the name {unfit[0]!r} in its input schema is not valid Unicode text, or contains NUL")
        return {_sendable(name): _sendable(each, depth - 1) for name, each in value.items()}
    return [_sendable(each, depth - 1) for each in value] if isinstance(value, list) else value


def pointer(error: ValidationError | SchemaError) -> str:
    """A JSON pointer (RFC 6901) to the place; ``/`` stands for the whole."""
    return written(error.absolute_path)


def written(path: Iterable[str | int]) -> str:
    """The steps to a place as a JSON pointer."""
    return "/" + "/".join(map(pointer_step, path))


def check_references(schema: Json) -> None:
    """Check that a schema refers to nothing outside of it.

    Raises:
        Unresolvable: it does.
    """
    whole = Resource.from_contents(schema, default_specification=DRAFT202012)
    resolver = SchemaRegistry().with_resource("", whole).crawl().resolver()  # else each lookup would crawl it
    for reference in _references(schema):
        resolver.lookup(reference)


def _references(schema: object) -> Iterator[str]:
    match schema:
        case dict():
            yield from (schema[key] for key in ("$ref", "$dynamicRef") if isinstance(schema.get(key), str))
            for key, value in schema.items():
                if key in NAMED and isinstance(value, dict):
                    yield from _references([*value.values()])
                elif key not in _DATA and not str(key).startswith("x-"):
                    yield from _references(value)
        case list():
            for value in schema:
                yield from _references(value)


ROUNDS = 6
"""Text that became an object can contain texts of its own, so arguments are checked up to this often."""
MAX_ERROR_CHARS = 200
_SHOWN_CHARS = 40
MAX_PARSED_CHARS = 1_000_000
"""Longer text is not parsed as JSON."""
# As JSON writes numbers: 007 and +5 are identifiers, not numbers.
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,300})(?:\.[0-9]{1,300})?(?:[eE][+-]?[0-9]{1,3})?")
_WORDS = {"true": True, "false": False}

NOTHING = object()
"""No value of that type says the same."""


def coerced(arguments: Any, validator: Any) -> Any:
    """Arguments made as valid as is possible without loss; a copy where anything is changed."""
    if validator.is_valid(arguments):
        return arguments
    box = [copy.deepcopy(arguments)]
    for _ in range(ROUNDS):
        repaired = [_repair(box, error, validator) for error in list(validator.iter_errors(box[0]))]
        if not any(repaired):
            break
    return box[0]


def _repair(box: list[Any], error: ValidationError, validator: Any) -> bool:
    """Replace the value in error by one that says the same; False if there is none."""
    *above, last = [0, *error.absolute_path]
    holder: Any = box
    try:
        for step in above:
            holder = holder[step]
        if holder[last] is not error.instance:
            return False  # another error at the same place was repaired already
    except (KeyError, IndexError, TypeError):
        return False
    # null for an argument that the schema names means that it is not given; in a map null is data, and stays.
    if error.instance is None and ("properties", last) in pairwise(error.absolute_schema_path):
        del holder[last]
        return True
    better = next(_candidates(error, validator), NOTHING)
    if better is not NOTHING:
        holder[last] = better
    return better is not NOTHING


def _candidates(error: ValidationError, validator: Any) -> Iterator[Any]:
    """Values that say the same as the one in error, those that resolve the error first."""
    here, value = validator.evolve(schema=error.schema), error.validator_value
    wanted: list[Any] = value if isinstance(value, list) else [value]
    if error.validator in ("anyOf", "oneOf"):
        trials = (coerced(error.instance, validator.evolve(schema=each)) for each in wanted)
        yield from (trial for trial in trials if here.is_valid(trial))
    elif error.validator == "type":
        found = [each for kind in wanted if (each := converted(error.instance, kind)) is not NOTHING]
        yield from (each for each in found if len(found) == 1 or here.is_valid(each))
        yield from found


def error_in(arguments: Any, validator: Any) -> str | None:
    """The most relevant error of arguments, None if they are valid."""
    error = best_match(validator.iter_errors(arguments))
    return None if error is None else short(f"{pointer(error)}: {_explained(error)}", MAX_ERROR_CHARS)


def nearest(name: str, names: list[str]) -> str:
    """Advice for a name that is not among these."""
    return did_you_mean(name, names, most=3, least=0.5) or f"known: {', '.join(names) or 'none'}"


def _explained(error: ValidationError) -> str:
    shown = short(json.dumps(error.instance, ensure_ascii=False, default=str), _SHOWN_CHARS)
    if expected := _expected_types(error):
        return f"expected {' or '.join(expected)}, got {shown}"
    if error.validator == "additionalProperties" and error.validator_value is False:
        schema: Any = error.schema
        given: Any = error.instance
        known = list(schema.get("properties", {}))
        foreign = next((name for name in given if name not in known), "")
        left = [name for name in known if name not in given]
        return f"unknown property {short(foreign, _SHOWN_CHARS)!r}; {nearest(foreign, left or known)}"
    # The library puts the whole value before its message, which would leave no room for the message.
    return str(error.message).replace(repr(error.instance), shown, 1)


def _expected_types(error: ValidationError) -> list[str]:
    """All types that would do, if the type is what is wrong; each alternative is an error of its own under a parent."""
    siblings = [error]
    whole = error if error.context else error.parent
    if whole is not None and whole.validator in ("anyOf", "oneOf"):
        siblings = [each for each in whole.context if each.absolute_path == error.absolute_path]
    if not all(each.validator == "type" for each in siblings):
        return []
    kinds: list[Any] = [each.validator_value for each in siblings]
    return list(dict.fromkeys(kind for each in kinds for kind in (each if isinstance(each, list) else [each])))


def converted(value: Any, kind: str) -> Any:
    """The value as this type of JSON Schema, NOTHING if no value of the type says the same."""
    try:
        match kind:
            case "integer":
                number = Decimal(value if isinstance(value, float) else _number_text(value))
                if number.is_finite() and number == number.to_integral_value():
                    return int(number)
            case "number":
                text = _number_text(value)
                return int(text) if text.lstrip("-").isdecimal() else _exact(text)
            case "boolean" if isinstance(value, str):
                return _WORDS[value.strip().lower()]
            case "string" if isinstance(value, int | float):
                return json.dumps(value, allow_nan=False)
            case "null" if value == "null":
                return None
            case "array" if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
                parsed = _parsed(value)
                return parsed if isinstance(parsed, list) else [parsed]
            case "array" if value is not None:
                return [value]
            case "object" if isinstance(parsed := _parsed(value), dict):
                return parsed
    except (ValueError, KeyError, RecursionError):
        pass
    return NOTHING


def _number_text(value: Any) -> str:
    if not isinstance(value, str) or not _NUMBER.fullmatch(value.strip()):
        raise ValueError(value)
    return value.strip()


def _exact(text: str) -> float:
    """The number that a text says, if the number is written back with the same digits."""
    number = float(text)
    if not math.isfinite(number) or Decimal(repr(number)) != Decimal(text):
        raise ValueError(text)
    return number


def _parsed(text: Any) -> Any:
    def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            raise ValueError("a key occurs twice")
        return made

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    if not isinstance(text, str) or len(text) > MAX_PARSED_CHARS:
        raise ValueError(text)
    return json.loads(text, object_pairs_hook=distinct, parse_float=_exact, parse_constant=refuse)
