"""Compiling the JSON Schema of a tool's arguments."""

import json
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.validators import extend
from referencing import Registry as SchemaRegistry
from referencing import Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from loom_worker.core.errors import BadSettings
from loom_worker.core.values.chat import ToolSpec
from loom_worker.core.values.json import Json

_Exact: Any = extend(  # type: ignore[no-untyped-call]  # the library has no types for it
    Draft202012Validator,
    type_checker=Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda _, value: type(value) is int),
)
"""JSON Schema accepts 3.0 as an integer; a Python tool does not, so here it is an error, which coercion repairs."""


def compiled(spec: ToolSpec) -> Any:
    """The validator of a tool's arguments; it never fetches a schema.

    Raises:
        BadSettings: the name or the schema is invalid.
    """
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", spec.name):
        raise BadSettings(f"tool {spec.name!r}: a name is 1-64 of A-Z a-z 0-9 _ -")
    return _validator(spec.name, json.dumps(spec.input_schema))


@lru_cache(maxsize=1024)
def _validator(name: str, text: str) -> Any:
    """Checking a schema takes 7 ms, and agents have most of their tools in common."""
    schema = json.loads(text)
    try:
        Draft202012Validator.check_schema(schema)
        if schema.get("type") != "object":
            raise BadSettings(f"tool {name!r}: the input schema's type must be object")
        check_references(schema)
    except SchemaError as error:
        raise BadSettings(f"tool {name!r}: invalid input schema at {pointer(error)}: {error.message}") from error
    except Unresolvable as error:
        raise BadSettings(f"tool {name!r}: the input schema refers to {error.ref!r}, which is not in it") from error
    # An empty registry: the default one would fetch foreign references from the network.
    return _Exact(schema, registry=SchemaRegistry())


def pointer(error: ValidationError | SchemaError) -> str:
    """A JSON pointer (RFC 6901) to the place; ``/`` stands for the whole."""
    return written(error.absolute_path)


def written(path: Iterable[str | int]) -> str:
    """The steps to a place as a JSON pointer."""
    steps = (str(step).replace("~", "~0").replace("/", "~1") for step in path)
    return "/" + "/".join(steps)


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
            for value in schema.values():
                yield from _references(value)
        case list():
            for value in schema:
                yield from _references(value)
