"""One pattern out of its mapping, whatever file the mapping stands in."""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from loom_worker.core.fields import MISSING, InvalidField, Place
from loom_worker.core.values.json import Json
from loom_worker.core.values.patterns import Pattern
from loom_worker.patterns import aliases, chunks
from loom_worker.patterns.fields import PatternFields, plain

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_PARTS: Mapping[str, Callable[[Any, Place], tuple[Any, Json]]] = {
    "parameters": chunks.parameters,
    "templates": chunks.templates,
    "examples": chunks.examples,
    "common_errors": chunks.common_errors,
}
_COMMA_SEPARATED = frozenset({"tags", "tag", "keywords"})
"""Keys whose single text is several if it has commas."""
MOST_ID_CHARS = 255
"""Longest id; it is a key in the store's tables."""


def pattern(fields: PatternFields, *, folder: str, inherited: Mapping[str, str], library: Json) -> Pattern:
    """Build a pattern, without source and line.

    Args:
        fields: its mapping, sorted by ``aliases.PATTERN``.
        folder: under the root, such as ``sql``; it makes the name an id.
        inherited: category, difficulty and backend_type of its library; a flat pattern inherits nothing.
        library: what its library says of itself, to be kept in ``extra``.

    Raises:
        InvalidField: a value cannot be used.
        ValueError: a number has too many digits to be written.
    """
    name = _name(fields, folder)
    texts = {
        key: fields.text(key) or inherited.get(key, "")
        for key in ("title", "description", "category", "difficulty", "backend_type")
    }
    if not texts["category"]:
        raise InvalidField(("category",), MISSING)
    parts = {key: read(fields.get(key), fields.place_of(key)) for key, read in _PARTS.items()}
    lists: dict[str, Any] = {key: _texts(fields, key) for key in ("use_cases", "intents", "tags", "related_patterns")}
    lists |= {key: read for key, (read, _) in parts.items()}
    rule = chunks.rules(fields.get("rule"), fields.place_of("rule"))
    made = Pattern(
        id=f"{folder}/{name}",
        name=name,
        title=texts["title"] or re.sub(r"[_-]", " ", name).capitalize(),
        description=texts["description"],
        category=texts["category"],
        difficulty=texts["difficulty"].lower(),
        backend_type=aliases.backend_name(texts["backend_type"]),
        priority=fields.priority("priority"),
        best_practices="\n".join(part for part in (fields.prose("best_practices"), rule) if part),
        syntax=fields.prose("syntax"),
        extra=plain(fields.sorted.extra | {key: extra for key, (_, extra) in parts.items() if extra}),
        **lists,
    )
    made = replace(made, digest=digest(made))
    return replace(made, extra={"library": plain(library), **made.extra}) if library else made


def digest(pattern: Pattern) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of what a pattern says, as JSON with sorted keys.

    Where it stands (source, line) and what its library says of itself are not in it.
    """
    content = {name: getattr(pattern, name) for name in Pattern.__slots__ if name not in ("source", "line", "digest")}
    text = json.dumps(
        content,
        sort_keys=True,
        separators=(",", ":"),
        default=lambda part: {name: getattr(part, name) for name in part.__slots__},
    )
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:16]


def _name(fields: PatternFields, folder: str) -> str:
    name = fields.required("name")
    if not _NAME.fullmatch(name):
        raise InvalidField(fields.place_of("name"), f"{name!r} may hold letters, digits, '_', '-' and '.' only")
    if len(f"{folder}/{name}") > MOST_ID_CHARS:
        raise InvalidField(fields.place_of("name"), f"at most {MOST_ID_CHARS} characters with its folder")
    return name


def _texts(fields: PatternFields, key: str) -> tuple[str, ...]:
    is_comma_separated = fields.place_of(key)[-1] in _COMMA_SEPARATED
    return fields.texts(key, separator="," if is_comma_separated else "\n")
