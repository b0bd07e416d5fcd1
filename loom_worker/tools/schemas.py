"""The JSON Schema of a tool's arguments: compiled, and as providers take it."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.validators import extend
from referencing import Registry as SchemaRegistry
from referencing import Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from loom_worker.backends.tool_schemas import NAMED, SentSchema, Unfit, normal, sent
from loom_worker.core.errors import BadSettings
from loom_worker.core.values.chat import ToolSpec
from loom_worker.core.values.json import Json, pointer_step
from loom_worker.llm.sanitize import REPLACEMENT, clean

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
        return clean(value)
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
    resolver = SchemaRegistry().with_resource("", whole).resolver()
    for reference in _references(schema):
        resolver.lookup(reference)


def _references(schema: object) -> Iterator[str]:
    match schema:
        case dict():
            if isinstance(schema.get("$ref"), str):
                yield schema["$ref"]
            for key, value in schema.items():
                if key in NAMED and isinstance(value, dict):
                    yield from _references([*value.values()])
                elif key not in _DATA and not str(key).startswith("x-"):
                    yield from _references(value)
        case list():
            for value in schema:
                yield from _references(value)
