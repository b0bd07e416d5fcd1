"""Which patterns a document holds: it may be one pattern, wrap one, or be a library of many."""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from loom_worker.core.fields import MISSING, InvalidField, Place, mapping
from loom_worker.core.values.json import Json
from loom_worker.core.values.patterns import Pattern
from loom_worker.core.yaml_files import Document
from loom_worker.patterns import aliases, chunks
from loom_worker.patterns.aliases import sort
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


_WRAPPING = ("apiVersion", "kind", "metadata", "spec")
_LISTS: tuple[Place, ...] = (("spec", "entries"), ("spec", "patterns"), ("entries",), ("patterns",))


@dataclass(frozen=True, slots=True)
class Unit:
    """What a document says of one pattern, and where."""

    document: Document
    body: Any
    """Its mapping, if it is one."""
    roots: tuple[Place, ...] = ((),)
    """Where its keys stand: one place, or two where metadata and spec are read as one mapping."""
    label: Place = ()
    """Its place in a library, which errors begin with."""
    inherited: Mapping[str, str] = field(default_factory=dict)
    """Values for a category, difficulty or backend_type that it lacks."""
    library: Json = field(default_factory=dict)
    is_flat: bool = True
    """Whether it must name its category itself."""

    @property
    def line(self) -> int:
        """Where it begins, from 1."""
        return self.document.line_of(*self.roots[0]) or self.document.line

    def line_of(self, place: Place) -> int:
        """The line of a key within it, or of what would surround a key that is missing."""
        for length in range(len(place), 0, -1):
            lines = (self.document.line_of(*root, *place[:length]) for root in self.roots)
            line = next((line for line in lines if line is not None), None)
            if line is not None:
                return line
        return self.line

    @property
    def has_repeats(self) -> bool:
        """Whether a key stands twice in one of its mappings."""
        return any(self.document.repeated(*root) for root in self.roots)

    def explain(self, error: InvalidField) -> str:
        """The error, with the pattern's place in its library before it."""
        return str(InvalidField((*self.label, *error.place), error.reason)) if self.label else str(error)


def units(document: Document) -> Iterator[Unit]:
    """What each pattern of a document says, in the document's order.

    Raises:
        InvalidField: the document is no pattern and no library of them; the place is within the document.
    """
    content = document.content
    if isinstance(content, list) and all(isinstance(entry, dict) for entry in content):
        yield from _library(document, content, root=(), about={})
        return
    fields = mapping(content, (), "a pattern")
    if is_library(content):
        place = _list_place(fields)
        if place is None:
            raise InvalidField(("spec", "entries"), MISSING)
        metadata = fields.get("metadata")
        about = {key: value for key, value in fields.items() if key not in (*_WRAPPING, "entries", "patterns")}
        about |= mapping(metadata, ("metadata",)) if metadata is not None else {}
        entries = _under(fields, place)
        if not isinstance(entries, (list, dict)):
            raise InvalidField(place, "a list of patterns is needed")
        yield from _library(document, entries, root=place, about=about)
    elif set(fields) == {"pattern"}:
        yield Unit(document, mapping(fields["pattern"], ("pattern",)), (("pattern",),))
    elif isinstance(fields.get("spec"), dict) and _kind(fields) == "pattern":
        # Metadata and spec are one mapping; what stands in both counts as in spec.
        metadata = mapping(fields.get("metadata") or {}, ("metadata",))
        yield Unit(document, {**metadata, **fields["spec"]}, (("spec",), ("metadata",)), is_flat=False)
    elif "kind" in fields and "name" not in fields:
        raise InvalidField(("kind",), f"{fields['kind']} is not read here; Pattern and PatternLibrary are")
    else:
        bare = {key: value for key, value in fields.items() if key not in ("apiVersion", "kind")}
        yield Unit(document, bare)


def is_library(content: Any) -> bool:
    """Whether a document (a mapping) holds its patterns in a list."""
    if not isinstance(content, dict):
        return False
    if _kind(content) == "patternlibrary":
        return True
    place = _list_place(content)
    entries = _under(content, place) if place else None
    inside = entries.values() if isinstance(entries, dict) else entries
    is_filled = isinstance(inside, (list, type({}.values()))) and any(isinstance(entry, dict) for entry in inside)
    return is_filled or (place is not None and not {"category", "templates"} & set(content))


def _kind(fields: Json) -> str:
    return re.sub(r"[^a-z]", "", str(fields.get("kind", "")).lower())


def _list_place(content: Json) -> Place | None:
    return next((place for place in _LISTS if _under(content, place[:-1], {}).get(place[-1]) is not None), None)


def _under(content: Any, place: Place, otherwise: Any = None) -> Any:
    for key in place:
        content = content.get(key) if isinstance(content, dict) else None
    return content if isinstance(content, dict) or otherwise is None else otherwise


def _library(document: Document, entries: Any, *, root: Place, about: Json) -> Iterator[Unit]:
    fields = sort(about, aliases.LIBRARY)
    scalars = {key: str(value).strip() for key, value in fields.values.items() if isinstance(value, (str, int, float))}
    inherited = {
        "category": scalars.get("domain", ""),
        "difficulty": scalars.get("difficulty", ""),
        "backend_type": scalars.get("backend_type", ""),
    }
    kept = {
        key: value for key, value in fields.values.items() if key in ("name", "version", "description")
    } | fields.extra
    for key, entry in entries.items() if isinstance(entries, dict) else enumerate(entries):
        place = (*root, key if isinstance(key, int) else str(key))
        body = {"name": key, **entry} if isinstance(entries, dict) and isinstance(entry, dict) else entry
        yield Unit(document, body, (place,), place, inherited, kept, is_flat=False)
