"""An OpenAPI document as it was read, with a way to follow its references and to name a place in it."""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin

from loom_worker.core import yaml_files
from loom_worker.core.errors import BadFile
from loom_worker.core.values.json import Json, pointer_name

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
        """As follow, for what must be an object.

        Raises:
            BadFile: it is none, or as follow.
        """
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
