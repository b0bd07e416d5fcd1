"""Which patterns a document holds: it may be one, wrap one, or be a library of many."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from loom_worker.core.values.json import Json
from loom_worker.core.yaml_files import Document
from loom_worker.patterns import aliases
from loom_worker.patterns.aliases import sort
from loom_worker.patterns.fields import Misfit, Place, mapping

_WRAPPING = ("apiVersion", "kind", "metadata", "spec")
_LISTS: tuple[Place, ...] = (("spec", "entries"), ("spec", "patterns"), ("entries",), ("patterns",))


@dataclass(frozen=True, slots=True)
class Unit:
    """What a document says of one pattern, and where."""

    document: Document
    body: Any
    """Its mapping, if it is one."""
    roots: tuple[Place, ...] = ((),)
    """Where its keys stand: one place, or more where metadata and spec are one mapping here."""
    label: Place = ()
    """Its place in a library, which goes before the place of what is wrong with it."""
    inherited: Mapping[str, str] = field(default_factory=dict)
    """What stands in for a category, difficulty or backend_type of its own."""
    library: Json = field(default_factory=dict)
    is_flat: bool = True
    """Whether it has to name its category itself."""

    @property
    def line(self) -> int:
        """Where it begins, from 1."""
        return self.document.line_of(*self.roots[0]) or self.document.line

    def line_of(self, place: Place) -> int:
        """The line of a key within it, or of what would be around that key if it were there."""
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

    def told(self, misfit: Misfit) -> str:
        """What is wrong, with the pattern's place in its library before it."""
        if not self.label:
            return str(misfit)
        return str(Misfit((*self.label, *misfit.place), misfit.args[1]))


def units(document: Document) -> Iterator[Unit]:
    """Give what each pattern of a document says, in the document's order.

    Raises:
        Misfit: the document is no pattern and no library of them; the place is within the document.
    """
    content = document.content
    if isinstance(content, list) and all(isinstance(entry, dict) for entry in content):
        yield from _library(document, content, root=(), about={})
        return
    fields = mapping(content, (), "a pattern")
    if is_library(content):
        yield from _library_file(document, fields)
    elif set(fields) == {"pattern"}:
        yield Unit(document, mapping(fields["pattern"], ("pattern",)), (("pattern",),))
    elif isinstance(fields.get("spec"), dict) and _kind(fields) == "pattern":
        yield _wrapped(document, fields)
    elif "kind" in fields and "name" not in fields:
        raise Misfit(("kind",), f"{fields['kind']} is not read here; Pattern and PatternLibrary are")
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


def _library_file(document: Document, fields: Json) -> Iterator[Unit]:
    place = _list_place(fields)
    if place is None:
        raise Misfit(("spec", "entries"), "is missing")
    metadata = fields.get("metadata")
    about = {key: value for key, value in fields.items() if key not in (*_WRAPPING, "entries", "patterns")}
    about |= mapping(metadata, ("metadata",)) if metadata is not None else {}
    entries = _under(fields, place)
    if not isinstance(entries, (list, dict)):
        raise Misfit(place, "a list of patterns is needed")
    yield from _library(document, entries, root=place, about=about)


def _library(document: Document, entries: Any, *, root: Place, about: Json) -> Iterator[Unit]:
    told = sort(about, aliases.LIBRARY)
    scalars = {key: str(value).strip() for key, value in told.values.items() if isinstance(value, (str, int, float))}
    inherited = {
        "category": scalars.get("domain", ""),
        "difficulty": scalars.get("difficulty", ""),
        "backend_type": scalars.get("backend_type", ""),
    }
    kept = {key: value for key, value in told.values.items() if key in ("name", "version", "description")} | told.extra
    for key, entry in entries.items() if isinstance(entries, dict) else enumerate(entries):
        place = (*root, key if isinstance(key, int) else str(key))
        body = {"name": key, **entry} if isinstance(entries, dict) and isinstance(entry, dict) else entry
        yield Unit(document, body, (place,), place, inherited, kept, is_flat=False)


def _wrapped(document: Document, fields: Json) -> Unit:
    """``kind: Pattern``: metadata and spec are one mapping, and what stands in both counts as in spec."""
    metadata = mapping(fields.get("metadata") or {}, ("metadata",))
    return Unit(document, {**metadata, **fields["spec"]}, (("spec",), ("metadata",)), is_flat=False)
