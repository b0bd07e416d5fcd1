"""JSON Schemas of answers, made of the fields of dataclasses, and those of pydantic's models in the same form."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel

from loom_worker.core.values.chat import Usage

Schema = dict[str, Any]

_TYPES: Mapping[str, Schema] = {
    "text": {"type": "string"},
    "whole": {"type": "integer", "minimum": 0},
    "number": {"type": "number"},
    "flag": {"type": "boolean"},
    "time": {"type": "string", "format": "date-time"},
    "free": {"type": "object"},
}
TEXT, WHOLE, NUMBER, FLAG, TIME, FREE = _TYPES.values()
CUT: Schema = {
    "truncated": {"const": True, "description": "Only in lists, where long fields are cut: some of these were."},
    "url": "text With `truncated`: the URL of the whole.",
}
"""What an answer has only where some of its fields were cut."""
_PLAIN: Mapping[object, Schema] = {str: TEXT, int: WHOLE, float: NUMBER, Decimal: NUMBER, bool: FLAG}


@dataclass(frozen=True, slots=True)
class Named:
    """A schema of the document's components; where it stands in another one, the document has a reference."""

    name: str
    """Empty: it stands in the others itself."""
    schema: Schema


Member = Schema | Named | str
"""A schema, or one in words: a type (``text``, ``whole``, ``number``, ``flag``, ``time``, ``free``), ``[]`` for a list,
``?`` if it can be null, and behind a space what it means."""


def schema_of(member: Member) -> Any:
    """The schema of a member."""
    if not isinstance(member, str):
        return member if not isinstance(member, Named) or member.name else member.schema
    kind, _, description = member.partition(" ")
    schema = _TYPES[kind.removesuffix("?").removesuffix("[]")]
    schema = array(schema) if "[]" in kind else schema
    schema = nullable(schema) if kind.endswith("?") else schema
    return {**schema, "description": description} if description else schema


def nullable(member: Member) -> Schema:
    """The schema, or null."""
    schema = schema_of(member)
    if isinstance(schema, Named) or "type" not in schema:
        return {"anyOf": [schema, {"type": "null"}]}
    words = {"enum": [*schema["enum"], None]} if "enum" in schema else {}
    return {**schema, "type": [schema["type"], "null"], **words}


def array(of: Member) -> Schema:
    """A list of them."""
    return {"type": "array", "items": schema_of(of)}


def one_of(kind: object, description: str = "") -> Schema:
    """A word of a Literal, or of a collection of words."""
    words = {"type": "string", "enum": list(get_args(kind) or kind)}  # type: ignore[call-overload]
    return {**words, "description": description} if description else words


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


def record(
    name: str, description: str, members: str = "", kind: type | None = None, /, *, also: str | Schema = "", **own: Any
) -> Named:
    """An object that always has all of its members, but for those in ``also``; new ones may come.

    Args:
        name: of the schema; empty: it has none.
        members: names, in order: ``object=turn`` is a constant, ``model:text?`` has a Member, and what is a name alone
            is described by the field of ``kind``; ``created_at`` is the time ``created_ms``.
        own: members that neither describes, as Members.
    """
    hints = dict.fromkeys(own, dict) | (get_type_hints(kind) if kind else {})
    always = _members(members, hints) | {each: schema_of(member) for each, member in own.items()}
    further = _members(also, hints) if isinstance(also, str) else also
    properties = always | {each: schema_of(member) for each, member in further.items()}
    schema = {"type": "object", "description": description, "properties": properties, "required": sorted(always)}
    return Named(name, schema)


def _members(words: str, hints: Mapping[str, Any]) -> Schema:
    found: Schema = {}
    for name, sign, rest in re.findall(r"(\w+)([=:]?)(\S*)", words):
        moment = hints.get(f"{name.removesuffix('_at')}_ms") if name.endswith("_at") else None
        if sign:
            found[name] = {"const": rest} if sign == "=" else schema_of(rest)
        elif moment is not None:
            found[name] = TIME if moment is int else nullable(TIME)
        else:
            found[name] = of_type(hints[name])
    return found


def list_of(item: Named) -> Named:
    """A page of things."""
    description = f"A page of {item.name}, 1 MiB at the most; pass `next` as `after` to go on."
    return record(f"{item.name}List", description, "object=list data has_more:flag next:text?", data=array(item))


@cache
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


USAGE = record(
    "Usage",
    "Tokens and cost; the cost is null where a price is not known.",
    "input_tokens output_tokens cache_read_tokens cache_write_tokens cost_usd llm_calls",
    Usage,
)
