"""The schema of a tool's arguments, made harmless.

It comes from a stranger and is run against every call: references are written out (none leads anywhere else, none
in a circle), patterns become words (a crafted one keeps Python's ``re`` busy for years), texts lose what is
invisible. Whatever is thereby checked less is checked by the server itself.
"""

import json
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any

from loom_worker.backends.tool_schemas import Unfit, normal, pointed
from loom_worker.core.text import clean
from loom_worker.core.values.json import Json

MAX_BYTES = 32 * 1024
"""Of the schema as JSON, references written out."""
MAX_DEPTH = 24
MAX_NODES = 4000
"""Objects, lists and values; a few references that each hold two others would otherwise grow without end."""
MAX_TEXT_CHARS = 1024

_NAMED = frozenset({"properties", "dependentSchemas", "dependencies"})
"""Keywords whose keys are names of the tool's own."""
_DROPPED = frozenset(
    "$defs definitions $schema $id $anchor $comment $vocabulary $dynamicAnchor $dynamicRef $recursiveRef "
    "$recursiveAnchor pattern patternProperties".split()
)
_VALUES = frozenset({"const", "default", "enum", "examples", "example", "required", "dependentRequired"})
"""Keywords that hold values, in which ``$ref`` or ``pattern`` would mean nothing."""
_NOTES = frozenset({"description", "title", "default", "examples", "deprecated", "readOnly", "writeOnly"})
"""Keywords next to a reference that do not restrict it."""


def fitted(schema: object) -> Json:
    """A copy that is small, needs nothing from elsewhere and is of an object; whether it is valid is not looked at.

    Raises:
        Unfit: there is no such copy.
    """
    found = normal(_Copy(schema).schema(schema, (), 0) if isinstance(schema, dict) else schema)
    size = len(json.dumps(found).encode())
    if size > MAX_BYTES:
        raise Unfit(f"its input schema is {size} bytes long, {MAX_BYTES} are allowed")
    return found


class _Copy:
    def __init__(self, whole: Mapping[str, Any]) -> None:
        self._whole = whole
        self._nodes = 0

    def schema(self, node: Mapping[str, Any], inside: tuple[str, ...], depth: int) -> Json:
        """Copy one schema; ``inside`` are the references it is written out for."""
        self._count(depth)
        copy = {key: self._keyword(key, value, inside, depth + 1) for key, value in _kept(node)}
        if isinstance(node.get("pattern"), str):
            note = f"(pattern: {visible(node['pattern'])})"
            copy["description"] = short(f"{copy.get('description', '')} {note}".strip(), MAX_TEXT_CHARS)
        if "patternProperties" in node:
            copy.pop("additionalProperties", None)
            copy.pop("unevaluatedProperties", None)
        return copy if "$ref" not in node else self._referred(node["$ref"], copy, inside, depth)

    def _referred(self, reference: object, siblings: Json, inside: tuple[str, ...], depth: int) -> Json:
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise Unfit(f"its input schema refers to {short(visible(str(reference)), 60)!r}, which is not in it")
        if reference in inside:
            return siblings
        found = self._any(self._at(reference), (*inside, reference), depth + 1)
        if not isinstance(found, dict):
            return siblings if found is True else {**siblings, "not": {}}
        return {**found, **siblings} if siblings.keys() <= _NOTES else {**siblings, "allOf": [found]}

    def _at(self, reference: str) -> Any:
        try:
            return pointed(self._whole, reference)
        except (LookupError, TypeError, ValueError) as error:
            found = short(visible(reference), 60)
            raise Unfit(f"its input schema refers to {found!r}, which is not in it") from error

    def _keyword(self, key: str, value: Any, inside: tuple[str, ...], depth: int) -> Any:
        if key in _NAMED and isinstance(value, dict):
            self._count(depth)
            return {_name(name): self._any(each, inside, depth + 1) for name, each in value.items()}
        if key in _VALUES:
            return self._value(value, depth)
        return self._any(value, inside, depth)

    def _any(self, value: Any, inside: tuple[str, ...], depth: int) -> Any:
        if isinstance(value, dict):
            return self.schema(value, inside, depth)
        self._count(depth)
        if isinstance(value, list):
            return [self._any(each, inside, depth + 1) for each in value]
        return short(visible(value), MAX_TEXT_CHARS) if isinstance(value, str) else value

    def _value(self, value: Any, depth: int) -> Any:
        self._count(depth)
        if isinstance(value, dict):
            return {_name(name): self._value(each, depth + 1) for name, each in value.items()}
        if isinstance(value, list):
            return [self._value(each, depth + 1) for each in value]
        return _name(value) if isinstance(value, str) else value

    def _count(self, depth: int) -> None:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise Unfit(f"its input schema has more than {MAX_NODES} parts")
        if depth > MAX_DEPTH:
            raise Unfit(f"its input schema is nested more than {MAX_DEPTH} deep")


def _kept(node: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((_name(key), value) for key, value in node.items() if key not in _DROPPED and key != "$ref")


def _name(name: str) -> str:
    if visible(name) != name or len(name) > MAX_TEXT_CHARS:
        raise Unfit("its input schema has names or values with invisible characters, or very long ones")
    return name


_KEPT = "\n\t"
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
_JOINERS = "\u200c\u200d\ufe0f"
_VARIATIONS = frozenset([*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0), 0x034F, 0x115F, 0x1160, 0x3164, 0xFFA0])
"""Selectors and fillers: no category of their own, nothing to see, and enough of them to carry hidden text."""


def visible(text: str) -> str:
    """The text without characters that a person cannot see but a model reads; joiners stay where they do join."""
    if text.isascii() and text.isprintable():
        return text
    return clean("".join(char for char in text if char in _KEPT or char in _JOINERS or not _is_hidden(char)))


def short(text: str, limit: int) -> str:
    """The text, its end replaced by an ellipsis if it is longer than ``limit`` characters."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def plain(text: str, limit: int) -> str:
    """Visible, in one line and short: fit for a log or an error."""
    return visible(short(" ".join(visible(text[: 4 * limit]).split()), limit))


def _is_hidden(char: str) -> bool:
    return unicodedata.category(char) in _INVISIBLE or ord(char) in _VARIATIONS
