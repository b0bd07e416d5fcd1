"""What the schemas of answers are made of."""

from typing import get_args

from web.request_schemas import Schema

TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer", "minimum": 0}
NUMBER: Schema = {"type": "number"}
FLAG: Schema = {"type": "boolean"}
TIME: Schema = {"type": "string", "format": "date-time"}
FREE: Schema = {"type": "object"}


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
