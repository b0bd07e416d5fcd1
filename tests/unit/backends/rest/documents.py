"""Small OpenAPI documents for the tests of their parts."""

import json
from pathlib import Path
from typing import Any

from loom_worker.backends.rest.document import OpenApiFile, read
from loom_worker.backends.rest.openapi import Operation, listed, operation

Node = dict[str, Any]


def document(paths: Node, *, version: str = "3.1.0", **more: Any) -> OpenApiFile:
    return OpenApiFile(Path("api.json"), {"openapi": version, "info": {"title": "T"}, "paths": paths, **more})


def one(node: Node, *, path: str = "/things", method: str = "get", version: str = "3.1.0", **more: Any) -> Operation:
    """The one operation of a document that has no other."""
    whole = document({path: {method: node}}, version=version, **more)
    (entry,) = listed(whole)
    return operation(whole, entry)


def written(folder: Path, root: Any, name: str = "api.json") -> Path:
    path = folder / name
    path.write_text(root if isinstance(root, str) else json.dumps(root), encoding="utf-8")
    return path


def read_back(folder: Path, root: Any, name: str = "api.json") -> OpenApiFile:
    return read(written(folder, root, name))


def parameter(name: str, place: str, schema: Node | None = None, **more: Any) -> Node:
    return {"name": name, "in": place, "schema": schema or {"type": "string"}, **more}


def body(schema: Node, media_type: str = "application/json", *, required: bool = True) -> Node:
    return {"required": required, "content": {media_type: {"schema": schema}}}
