"""An OpenAPI document as it was read, with a way to follow its references and to name a place in it.

Its schemas become JSON Schema that stands alone: references written out, dialects made one.
"""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin

from loom_worker.backends.tool_schemas import exclusive
from loom_worker.core import yaml_files
from loom_worker.core.errors import BadFile
from loom_worker.core.text import one_line
from loom_worker.core.values.json import Json, pointer_name, pointer_step

MAX_BYTES = 10_000_000
"""Size of a JSON document."""
MAX_YAML_BYTES = 2 * 1024 * 1024
MAX_HOPS = 20
"""References that lead to another reference, one after the other."""


@dataclass(frozen=True, slots=True)
class OpenApiFile:
    """What is in the file."""

    file: Path
    root: Json

    @property
    def has_json_schema(self) -> bool:
        """True from OpenAPI 3.1 on, where a schema is JSON Schema 2020-12."""
        return not str(self.root["openapi"]).startswith("3.0")

    def wrong(self, place: str, detail: str) -> BadFile:
        """The error for a place, a JSON pointer with ``#`` before it."""
        return BadFile(f"{self.file}: {place}: {detail}")

    def follow(self, node: Any, place: str) -> tuple[Any, str]:
        """Return what a node refers to, and where that stands; the node itself where it is no reference.

        Raises:
            BadFile: the reference is not a local one, leads nowhere or in a circle.
        """
        for _ in range(MAX_HOPS):
            if not isinstance(node, dict) or "$ref" not in node:
                return node, place
            node, place = self._at(node["$ref"], place), str(node["$ref"])
        raise self.wrong(place, f"references lead in a circle, or through more than {MAX_HOPS} others")

    def mapping(self, node: Any, place: str) -> tuple[Json, str]:
        """As follow, for what must be an object; anything else raises BadFile."""
        found, where = self.follow(node, place)
        if not isinstance(found, dict):
            raise self.wrong(where, "expected an object")
        return found, where

    def entries(self, node: Any, place: str) -> Iterator[tuple[Any, str]]:
        """The entries of a list with their places; none if there is no list.

        Raises:
            BadFile: it is something else.
        """
        if not isinstance(node, list | None):
            raise self.wrong(place, "expected a list")
        yield from ((entry, f"{place}/{number}") for number, entry in enumerate(node or ()))

    def _at(self, reference: Any, place: str) -> Any:
        own = self.root.get("$self")  # the document's own address, from OpenAPI 3.2 on
        if isinstance(reference, str) and isinstance(own, str) and not reference.startswith("#"):
            with suppress(ValueError):  # no URL
                reference = urljoin(own, reference).removeprefix(own)
        if not isinstance(reference, str) or not reference.startswith("#/"):
            raise self.wrong(place, f"$ref {str(reference)[:200]!r}: only references within the document are followed")
        node: Any = self.root
        for name in unquote(reference[2:]).split("/"):
            node = _child(node, pointer_name(name))
        if node is None:
            raise self.wrong(place, f"$ref {reference[:200]!r} leads nowhere")
        return node


def read(path: Path) -> OpenApiFile:
    """Read an OpenAPI 3.0, 3.1 or 3.2 document, in JSON (``.json``) or YAML.

    Raises:
        BadFile: it cannot be read, or is something else; the text names file and place.
    """
    root = _json(path) if path.suffix.lower() == ".json" else _yaml(path)
    version = str(root.get("openapi", "")) if isinstance(root, dict) else ""
    if not version.startswith(("3.0", "3.1", "3.2")):
        raise BadFile(f"{path}: expected OpenAPI of version 3.0, 3.1 or 3.2, found {version[:20] or 'none'}")
    return OpenApiFile(path, root)


def _child(node: Any, name: str) -> Any:
    if isinstance(node, dict):
        return node.get(name) if name in node else node.get(int(name)) if name.isdecimal() else None
    if isinstance(node, list) and name.isdecimal():
        return node[int(name)] if int(name) < len(node) else None
    return None


def _json(path: Path) -> Any:
    try:
        raw = path.read_bytes()
        if len(raw) > MAX_BYTES:
            raise BadFile(f"{path}: {len(raw)} bytes, at most {MAX_BYTES} are read")
        return json.loads(raw)
    except OSError as error:
        raise BadFile(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadFile(f"{path}: not UTF-8 (byte {error.start})") from error
    except json.JSONDecodeError as error:
        raise BadFile(f"{path}:{error.lineno}: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise BadFile(f"{path}: nested too deep, or a number is too long") from error


def _yaml(path: Path) -> Any:
    if path.is_file() and path.stat().st_size > MAX_YAML_BYTES:
        raise BadFile(f"{path}: larger than {MAX_YAML_BYTES} bytes: convert it to JSON (up to {MAX_BYTES} bytes)")
    documents = yaml_files.marked_documents(path, most_bytes=MAX_YAML_BYTES)
    if len(documents) != 1:
        raise BadFile(f"{path}: expected one document, found {len(documents)}")
    return documents[0].content


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
