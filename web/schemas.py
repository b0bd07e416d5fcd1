"""What JSON Schemas are made of, and how the fields of a dataclass describe the answer that it becomes."""

from collections.abc import Mapping
from decimal import Decimal
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from loom_worker.core.values.calls import Call
from loom_worker.core.values.chat import Usage
from loom_worker.core.values.waiting import Waiting

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer", "minimum": 0}
NUMBER: Schema = {"type": "number"}
FLAG: Schema = {"type": "boolean"}
TIME: Schema = {"type": "string", "format": "date-time"}
FREE: Schema = {"type": "object"}
CUT: Schema = {
    "truncated": {"const": True, "description": "Only in lists, where long fields are cut: some of these were."},
    "url": {"type": "string", "description": "With `truncated`: the URL of the whole."},
}
"""What an answer has only where some of its fields were cut."""
_PLAIN: Mapping[object, Schema] = {str: TEXT, int: WHOLE, float: NUMBER, Decimal: NUMBER, bool: FLAG}
_NAMED: Mapping[object, str] = {Usage: "Usage", Call: "ToolCall", Waiting: "Waiting"}
"""Classes whose answers have a schema of their own."""


def or_null(schema: Schema) -> Schema:
    """The schema, or null."""
    return {**schema, "type": [schema["type"], "null"]}


def ref(name: str) -> Schema:
    """A schema by its name."""
    return {"$ref": f"#/components/schemas/{name}"}


def array(of: Schema) -> Schema:
    """A list of them."""
    return {"type": "array", "items": of}


def one_of(kind: object) -> Schema:
    """A word of a Literal."""
    return {"type": "string", "enum": list(get_args(kind))}


def of_type(hint: Any) -> Schema:
    """The schema of the values that a type annotation allows."""
    if get_origin(hint) in (Union, UnionType):
        [some] = (each for each in get_args(hint) if each is not NoneType)
        schema = of_type(some)
        if "$ref" in schema:
            return {"anyOf": [schema, {"type": "null"}]}
        return or_null(schema) | ({"enum": [*schema["enum"], None]} if "enum" in schema else {})
    if get_origin(hint) is Literal:
        return one_of(hint)
    if get_origin(hint) is tuple:
        return array(of_type(get_args(hint)[0]))
    if hint in _NAMED:
        return ref(_NAMED[hint])
    return _PLAIN.get(hint, FREE)


def members(kind: type, names: str, **own: Schema) -> Schema:
    """The members of what a dataclass' ``as_json`` gives, as its fields describe them.

    Args:
        names: of the members, in order; ``created_at`` is a time for a field ``created_ms``.
        own: members that no field describes by its name and type.
    """
    hints = get_type_hints(kind)
    schemas: Schema = {}
    for name in names.split():
        moment = hints.get(f"{name.removesuffix('_at')}_ms") if name.endswith("_at") else None
        if name in own:
            schemas[name] = own[name]
        elif moment is not None:
            schemas[name] = TIME if moment is int else or_null(TIME)
        else:
            schemas[name] = of_type(hints[name])
    return schemas


def described(schema: Schema, description: str) -> Schema:
    """The schema with what it means."""
    return {**schema, "description": description}


def answer(properties: Schema, *, description: str, also: Schema | None = None) -> Schema:
    """An object that always has all of its members, but for those in ``also``; new ones may come."""
    named = {**properties, **(also or {})}
    return {"type": "object", "description": description, "properties": named, "required": sorted(properties)}


def list_of(name: str) -> Schema:
    """The schema of a page of things."""
    return answer(
        {"object": {"const": "list"}, "data": array(ref(name)), "has_more": FLAG, "next": or_null(TEXT)},
        description=f"A page of {name}, 1 MiB at the most; pass `next` as `after` to go on.",
    )
