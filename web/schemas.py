"""JSON Schemas of answers, made of the fields of dataclasses, and those of pydantic's models in the same form."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel

from loom_worker.core.values.chat import Usage

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


@dataclass(frozen=True, slots=True)
class Named:
    """A schema of the document's components; where it stands in another one, the document has a reference."""

    name: str
    schema: Schema


def nullable(schema: Schema | Named) -> Schema:
    """The schema, or null."""
    if isinstance(schema, Named) or "type" not in schema:
        return {"anyOf": [schema, {"type": "null"}]}
    return schema | {"type": [schema["type"], "null"]} | ({"enum": [*schema["enum"], None]} if "enum" in schema else {})


def array(of: Schema | Named) -> Schema:
    """A list of them."""
    return {"type": "array", "items": of}


def one_of(kind: object) -> Schema:
    """A word of a Literal, or of a collection of words."""
    return {"type": "string", "enum": list(get_args(kind) or kind)}  # type: ignore[call-overload]


def described(schema: Schema | Named, description: str) -> Schema:
    """The schema with what it means."""
    return {**schema, "description": description} if isinstance(schema, dict) else {"anyOf": [schema]}


def text(description: str) -> Schema:
    """A text, with what it means."""
    return TEXT | {"description": description}


def text_or_null(description: str) -> Schema:
    """A text or null, with what both mean."""
    return {"type": ["string", "null"], "description": description}


def of_type(hint: Any) -> Any:
    """The schema of the values that a type annotation allows."""
    if get_origin(hint) in (Union, UnionType):
        [some] = (each for each in get_args(hint) if each is not NoneType)
        return nullable(of_type(some))
    if get_origin(hint) is Literal:
        return one_of(hint)
    if get_origin(hint) is tuple:
        return array(of_type(get_args(hint)[0]))
    return USAGE if hint is Usage else _PLAIN.get(hint, FREE)


def members(kind: type, names: str, **own: Schema | Named) -> Schema:
    """The members of what a dataclass' ``as_json`` gives, as its fields describe them.

    Args:
        names: of the members, in order; ``object=turn`` is a constant, ``created_at`` the time ``created_ms``.
        own: members that no field describes by its name and type.
    """
    hints = get_type_hints(kind)
    schemas: Schema = {}
    for name, _, constant in (each.partition("=") for each in names.split()):
        moment = hints.get(f"{name.removesuffix('_at')}_ms") if name.endswith("_at") else None
        if constant:
            schemas[name] = {"const": constant}
        elif name in own:
            schemas[name] = own[name]
        elif moment is not None:
            schemas[name] = TIME if moment is int else nullable(TIME)
        else:
            schemas[name] = of_type(hints[name])
    return schemas


def record(description: str, properties: Schema, *, also: Schema | None = None) -> Schema:
    """An object that always has all of its members, but for those in ``also``; new ones may come."""
    named = {**properties, **(also or {})}
    return {"type": "object", "description": description, "properties": named, "required": sorted(properties)}


def list_of(item: Named) -> Named:
    """A page of things."""
    page = {"object": {"const": "list"}, "data": array(item), "has_more": FLAG, "next": nullable(TEXT)}
    description = f"A page of {item.name}, 1 MiB at the most; pass `next` as `after` to go on."
    return Named(f"{item.name}List", record(description, page))


def schema_of_model(model: type[BaseModel]) -> Schema:
    """The schema of a pydantic model, with nothing that only pydantic needs: no titles, references, null defaults."""
    whole = model.model_json_schema()
    return _plain(whole, whole.get("$defs", {}))


def _plain(given: Schema, models: Schema) -> Schema:
    own = {name: value for name, value in given.items() if name not in ("$defs", "$ref", "title", "discriminator")}
    choices = own.pop("anyOf", own.pop("oneOf", ()))
    if "$ref" in given:
        choices = (models[str(given["$ref"]).rpartition("/")[2]],)
    schema = {**_merged([_plain(each, models) for each in choices]), **own}
    if schema.get("default", schema) is None:
        del schema["default"]
    for name in ("additionalProperties", "items"):
        if schema.get(name) in (True, {}):
            del schema[name]
    if "const" in schema:
        schema["enum"] = [schema.pop("const")]
    if "description" in schema:
        schema["description"] = " ".join(schema["description"].split())
    if "properties" in schema:
        schema["properties"] = {name: _plain(each, models) for name, each in schema["properties"].items()}
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            schema[name] = _plain(schema[name], models)
    return schema


def _merged(choices: list[Schema]) -> Schema:
    """One schema of values of several types, each of which has keywords of its own."""
    schema = {name: value for each in choices for name, value in each.items()}
    found = [each["type"] for each in choices if "type" in each]
    types = [name for each in found for name in ([each] if isinstance(each, str) else each)]
    if len(types) > 1:
        schema["type"] = types
        if "enum" in schema and "null" in types:
            schema["enum"] = [*schema["enum"], None]
    return schema


USAGE = Named(
    "Usage",
    record(
        "Tokens and cost; the cost is null where a price is not known.",
        members(Usage, "input_tokens output_tokens cache_read_tokens cache_write_tokens cost_usd llm_calls"),
    ),
)
