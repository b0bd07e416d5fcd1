"""Schemas of tools as providers take them, and the way back to the tool's own names. Pure.

The Messages API refuses a whole request for one schema whose type is not "object", that has oneOf, anyOf or allOf at
its top, or a property whose name is not 1-64 of A-Z a-z 0-9 _ . -; it reads JSON Schema 2020-12.
"""

import hashlib
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from loom_worker.core.values.json import Json, pointer_name, pointer_step

MAX_ALTERNATIVES_CHARS = 2000
MAX_PARTS = 4000
"""Schemas that the top of one consists of; a few references that each hold two others would grow without end."""
_KEY = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_PROPERTY = re.compile("(/(?:properties|dependentSchemas)/)([^/]*)")
_COMBINATORS = ("anyOf", "oneOf", "allOf")
NAMED = frozenset("properties patternProperties dependentSchemas $defs definitions dependencies".split())
"""Keywords whose keys are names; a schema stands under each."""
_ONE = frozenset("items contains not if then else propertyNames additionalProperties unevaluatedProperties".split())


class Unfit(ValueError):
    """The schema cannot be used; the text says why."""


@dataclass(frozen=True, slots=True)
class SentSchema:
    """A schema as it is sent; it may allow more than the tool's own."""

    schema: Json
    own_names: Mapping[str, str]
    """The tool's own name by the name that is sent, for properties that were renamed; the longest first."""
    alternatives: str
    """Combinators that stood at the top, as JSON for the description; empty: none did."""

    def own(self, value: Any) -> Any:
        """A call's arguments under the tool's own names, which the model may use as well."""
        if isinstance(value, dict):
            return {self.own_names.get(name, name): self.own(each) for name, each in value.items()}
        return [self.own(each) for each in value] if isinstance(value, list) else value

    def told(self, error: str) -> str:
        """An error about a call's arguments in the names that the model knows."""
        for name, own in self.own_names.items():
            error = error.replace(f"'{own}'", f"'{name}'").replace(f"/{pointer_step(own)}", f"/{name}" if own else "/")
        return error


def normal(schema: object) -> Json:
    """The schema of an object in the words of JSON Schema 2020-12, where it is written in those of an older draft.

    Raises:
        Unfit: it is not the schema of an object.
    """
    if not isinstance(schema, Mapping):
        raise Unfit("its input schema is not an object")
    found: Json = _modern(dict(schema))
    kinds = found.get("type", "object")
    if "object" not in (kinds if isinstance(kinds, list) else [kinds]):
        raise Unfit("its input schema is not one whose type is object")
    return {**found, "type": "object"}


def sent(schema: Json) -> SentSchema:
    """A valid schema from ``normal`` as providers take it; Unfit: its alternatives have too many parts."""
    names: dict[str, str] = {}
    found: Json = _renamed(schema, names)
    if {*_COMBINATORS, "$ref"} & found.keys():
        properties, required = _members(found, found, (), iter(range(MAX_PARTS)))
        found |= {"properties": properties, "required": required}
        found.pop("$ref", None)
    top = {key: found.pop(key) for key in _COMBINATORS if key in found}
    alternatives = json.dumps(top, ensure_ascii=False, separators=(",", ":"))[:MAX_ALTERNATIVES_CHARS] if top else ""
    return SentSchema(found, dict(sorted(names.items(), key=lambda pair: -len(pair[1]))), alternatives)


def pointed(whole: Mapping[str, Any], reference: str) -> Any:
    """The part of a schema at a local reference (``#/$defs/name``); LookupError, TypeError or ValueError."""
    place: Any = whole
    for step in map(pointer_name, unquote(reference).split("/")[1:]):
        place = place[int(step)] if isinstance(place, list) else place[step]
    return place


def exclusive(node: Json) -> None:
    """Make the bounds of draft 4 and OpenAPI 3.0, a number and whether it is excluded, the one number of later ones."""
    for bound, excluded in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(node.get(excluded), bool) and node.pop(excluded) and bound in node:
            node[excluded] = node.pop(bound)


def _below(node: Json, change: Callable[[Any], Any]) -> Json:
    """A copy, each schema directly inside it changed; values, in which keywords mean nothing, are left alone."""
    copy = dict(node)
    for key, value in node.items():
        if key in NAMED and isinstance(value, dict):
            copy[key] = {name: change(each) for name, each in value.items()}
        elif key in (*_COMBINATORS, "prefixItems") and isinstance(value, list):
            copy[key] = [change(each) for each in value]
        elif key in _ONE:
            copy[key] = change(value)
    return copy


def _modern(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return {} if schema in (None, []) else schema
    node = {key: value for key, value in schema.items() if key not in ("$schema", "additionalItems")}
    node = {key: value for key, value in node.items() if value is not None or key in ("const", "default")}
    exclusive(node)
    if isinstance(first := node.get("items"), list):
        del node["items"]
        node |= {"prefixItems": first} if first else {}
        node |= {"items": schema["additionalItems"]} if "additionalItems" in schema else {}
    node |= {key: {} for key in NAMED & node.keys() if node[key] == []}  # PHP writes an empty object so
    for key in ("required", "type"):
        if isinstance(many := node.get(key), list) and all(isinstance(each, str) for each in many):
            node[key] = list(dict.fromkeys(many))
    if isinstance(node.get("required"), bool):  # draft 3 and forms: of the property, which its object may then lack
        del node["required"]
    if isinstance(needs := node.pop("dependencies", None), dict):
        needs = {own: [need] if isinstance(need, str) else need for own, need in needs.items()}
        for key, kinds in (("dependentRequired", list), ("dependentSchemas", dict | bool)):
            some = {own: need for own, need in needs.items() if isinstance(need, kinds)}
            if some and isinstance(known := node.get(key, {}), dict):
                node[key] = some | known
    return _below(node, _modern)


def _renamed(schema: Any, names: dict[str, str]) -> Any:
    """The schema with names of properties that providers take, as the keys of ``names``."""
    if not isinstance(schema, dict):
        return schema

    def fit(own: Any) -> Any:
        return [_fit(each, names) for each in own] if isinstance(own, list) else own

    node = _below(schema, lambda each: _renamed(each, names))
    if "properties" in node:
        node["properties"] = {_fit(own, names): _noted(own, each) for own, each in node["properties"].items()}
    if "required" in node:
        node["required"] = fit(node["required"])
    for key in [key for key in ("dependentRequired", "dependentSchemas") if key in node]:
        node[key] = {_fit(own, names): fit(need) for own, need in node[key].items()}
    if names:
        node.pop("propertyNames", None)
    if "$ref" in node:
        node["$ref"] = _PROPERTY.sub(lambda step: step[1] + _fit(pointer_name(unquote(step[2])), names), node["$ref"])
    return node


def _fit(own: str, names: dict[str, str]) -> str:
    """The name itself or, where providers refuse it, what can be kept of it and a digest: no data has such a key."""
    if _KEY.fullmatch(own):
        return own
    letters = unicodedata.normalize("NFKD", own.replace("ß", "ss")).encode("ascii", "ignore").decode()
    kept = re.sub("[^A-Za-z0-9_.-]+", "_", letters).strip("_") or "argument"
    name = f"{kept[:55]}_{hashlib.sha256(own.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
    names[name] = own
    return name


def _noted(own: str, schema: Any) -> Any:
    if _KEY.fullmatch(own) or not isinstance(schema, dict):
        return schema
    note = f"Stands for the argument {json.dumps(own, ensure_ascii=False)}."
    return {**schema, "description": f"{schema.get('description', '')} {note}".strip()}


def _members(node: Any, whole: Json, inside: tuple[str, ...], left: Iterator[int]) -> tuple[Json, list[str]]:
    """The properties that an object may have by a schema and its alternatives, and the names of those it must have."""
    if next(left, None) is None:
        raise Unfit(f"its input schema has more than {MAX_PARTS} parts once references are followed")
    if not isinstance(node, dict):
        return {}, []
    parts, reference = [*node.get("allOf", ())], node.get("$ref", "")
    if reference.startswith("#") and reference not in inside:
        with suppress(LookupError, TypeError, ValueError):  # an anchor is allowed, and not followed here
            parts.append(pointed(whole, reference))
    within = (*inside, reference)
    together = [_members(part, whole, within, left) for part in parts]
    required = [*node.get("required", ()), *(name for _, names in together for name in names)]
    found = _merged("allOf", (properties for properties, _ in together))
    for key in ("anyOf", "oneOf"):
        branches = [_members(part, whole, within, left) for part in node.get(key, ())]
        found = _merged("anyOf", (properties for properties, _ in branches)) | found
        required += sorted(set.intersection(*(set(names) for _, names in branches))) if branches else []
    own = node.get("properties", {})
    # Names beside ``additionalProperties: false`` are refused, whatever an alternative says of them.
    unnamed: Json | None = None if node.get("additionalProperties") is False else {}
    more = {name: each for name, each in found.items() if own.get(name, unnamed) in ({}, True)}
    return own | more, list(dict.fromkeys(required))


def _merged(keyword: str, many: Iterable[Json]) -> Json:
    found: dict[str, list[Any]] = {}
    for name, each in (pair for properties in many for pair in properties.items()):
        found[name] = [*(other for other in found.get(name, ()) if other != each), each]
    return {name: each[0] if len(each) == 1 else {keyword: each} for name, each in found.items()}
