"""The schemas of an OpenAPI document as JSON Schema that stands alone: references written out, dialects made one."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from loom_worker.backends.rest.document import OpenApiFile
from loom_worker.backends.tool_schemas import exclusive
from loom_worker.core.text import one_line
from loom_worker.core.values.json import Json, pointer_step

MAX_VALUES = 2_000
"""Schemas of one operation with all references written out; the model is sent them with every call."""
MAX_DEPTH = 40
MAX_DESCRIPTION_CHARS = 300

_KEPT = frozenset(
    "type enum const format default title multipleOf minimum maximum exclusiveMinimum exclusiveMaximum minLength "
    "maxLength pattern minItems maxItems uniqueItems minContains maxContains minProperties maxProperties required "
    "dependentRequired".split()
)
_ONE = frozenset("items additionalProperties not contains propertyNames if then else".split())
_LISTED = frozenset("allOf anyOf oneOf prefixItems".split())
_NAMED = frozenset("properties patternProperties dependentSchemas".split())


@dataclass(frozen=True, slots=True)
class _Spot:
    place: str
    above: tuple[str, ...] = ()
    """Places whose references are being written out."""
    depth: int = 0
    unsent: frozenset[str] = frozenset()
    """Properties that a schema around this one declares as read-only."""

    def below(self, *names: object) -> "_Spot":
        place = "/".join([self.place, *map(pointer_step, names)])
        return replace(self, place=place, depth=self.depth + 1, unsent=frozenset())


class Inliner:
    """Writes out the schemas of one operation, what an answer alone would hold left out."""

    def __init__(self, document: OpenApiFile) -> None:
        self._document = document
        self._left = MAX_VALUES

    def schema(self, node: Any, place: str) -> Json:
        """Return the schema; one that contains itself takes any value where it begins anew.

        Raises:
            BadFile: it is none, too long or too deep, or a reference cannot be followed.
        """
        found = self._written(node, _Spot(place))
        return found if isinstance(found, dict) else {} if found else {"not": {}}

    def _written(self, node: Any, spot: _Spot) -> Json | bool:
        self._left -= 1
        if self._left < 0:
            raise self._document.wrong(spot.place, f"more than {MAX_VALUES} schemas once references are written out")
        if spot.depth > MAX_DEPTH:
            raise self._document.wrong(spot.place, f"nested deeper than {MAX_DEPTH}")
        if isinstance(node, bool):
            return node
        if not isinstance(node, dict):
            raise self._document.wrong(spot.place, "expected a schema")
        return self._referred(node, spot) if "$ref" in node else self._plain(node, spot)

    def _referred(self, node: Json, spot: _Spot) -> Json | bool:
        target, place = self._document.follow(node, spot.place)
        if place in spot.above:
            return {"description": f"again as {place.rpartition('/')[2]} above"}
        deeper = replace(spot, place=place, above=(*spot.above, place), depth=spot.depth + 1)
        found = self._written(target, deeper)
        siblings = {key: value for key, value in node.items() if key != "$ref"}
        if not siblings or not self._document.has_json_schema:  # 3.0 ignores the siblings of a reference
            return found
        return {"allOf": [found], **self._plain(siblings, spot)}

    def _plain(self, node: Json, spot: _Spot) -> Json:
        unsent = spot.unsent | frozenset(self._read_only(node, spot))
        written: Json = {}
        for key, value in node.items():
            if key in _KEPT:
                written[key] = value
            elif key in _ONE:
                written[key] = self._written(value, spot.below(key))
            elif key in _LISTED:
                spots = ((entry, spot.below(key, number)) for number, entry in enumerate(self._list(value, spot, key)))
                written[key] = [self._written(entry, replace(at, unsent=unsent)) for entry, at in spots]
            elif key in _NAMED:
                members = self._document.mapping(value, spot.below(key).place)[0].items()
                kept = ((str(name), entry) for name, entry in members if key != "properties" or name not in unsent)
                written[key] = {name: self._written(entry, spot.below(key, name)) for name, entry in kept}
        for key in ("title", "description"):
            if isinstance(node.get(key), str):
                written[key] = one_line(node[key], MAX_DESCRIPTION_CHARS)
        return _one_dialect(node, _sendable(written, unsent))

    def _read_only(self, node: Json, spot: _Spot) -> Iterator[str]:
        """Properties, of this schema or of those it is composed of, that only answers hold."""
        if spot.depth > MAX_DEPTH:
            raise self._document.wrong(spot.place, f"nested deeper than {MAX_DEPTH}")
        properties = node.get("properties")
        for name, entry in properties.items() if isinstance(properties, dict) else ():
            found, _ = self._document.follow(entry, spot.below("properties", name).place)
            if isinstance(found, dict) and found.get("readOnly") is True:
                yield str(name)
        for number, entry in enumerate(self._list(node.get("allOf", []), spot, "allOf")):
            at = spot.below("allOf", number)
            found, place = self._document.follow(entry, at.place)
            if isinstance(found, dict) and place not in spot.above:
                yield from self._read_only(found, replace(at, place=place, above=(*spot.above, place)))

    def _list(self, value: Any, spot: _Spot, key: str) -> list[Any]:
        if not isinstance(value, list):
            raise self._document.wrong(spot.below(key).place, "expected a list")
        return value


def _sendable(written: Json, unsent: frozenset[str]) -> Json:
    """Without demands that nobody could meet: for what is read-only, and patterns of another language than ours."""
    if isinstance(written.get("required"), list):
        written["required"] = [name for name in written["required"] if not isinstance(name, str) or name not in unsent]
    else:
        written.pop("required", None)  # some also write a parameter's ``required`` into its schema
    try:
        re.compile(written.get("pattern", ""))
    except (re.error, TypeError):
        del written["pattern"]
    return written


def _one_dialect(node: Json, written: Json) -> Json:
    """What 3.0 says in its own way, said as 2020-12 does."""
    exclusive(written)
    if node.get("nullable") is not True:
        return written
    if "type" not in written:
        return {"anyOf": [written, {"type": "null"}]}
    kinds = written["type"] if isinstance(written["type"], list) else [written["type"]]
    written["type"] = list(dict.fromkeys([*kinds, "null"]))
    if isinstance(written.get("enum"), list) and None not in written["enum"]:
        written["enum"] = [*written["enum"], None]
    return written
