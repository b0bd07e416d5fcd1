"""One pattern out of the mapping that says it, whatever file it stood in."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from loom_worker.core.values.json import Json
from loom_worker.core.values.patterns import Pattern
from loom_worker.patterns import aliases, chunks
from loom_worker.patterns.aliases import Sorted
from loom_worker.patterns.fields import MISSING, Misfit, Place, plain, priority, prose, text, texts

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_COMMA_SEPARATED = frozenset({"tags", "tag", "keywords"})
"""Keys whose single text is several when there are commas in it."""
MOST_ID_CHARS = 255
"""Longest id; it is a key in the store's tables."""


def pattern(fields: Sorted, *, folder: str, inherited: Mapping[str, str], library: Json) -> Pattern:
    """Build a pattern, without source and line.

    Args:
        fields: its mapping, sorted by ``aliases.PATTERN``.
        folder: under the root, such as ``sql``; it makes the name an id.
        inherited: what its library says of category, difficulty and backend_type; a flat pattern inherits nothing.
        library: what its library tells of itself, to be kept in ``extra``.

    Raises:
        Misfit: a value cannot be used.
        ValueError: a number has too many digits to be written.
    """
    values = fields.values
    name = _name(fields, folder)
    told = {
        key: text(values.get(key), _place(fields, key)) or inherited.get(key, "")
        for key in ("title", "description", "category", "difficulty", "backend_type")
    }
    if not told["category"]:
        raise Misfit(("category",), MISSING)
    read_parameters, more_parameters = chunks.parameters(values.get("parameters"), _place(fields, "parameters"))
    read_templates, more_templates = chunks.templates(values.get("templates"), _place(fields, "templates"))
    read_examples, more_examples = chunks.examples(values.get("examples"), _place(fields, "examples"))
    read_errors, more_errors = chunks.common_errors(values.get("common_errors"), _place(fields, "common_errors"))
    beside = {
        "parameters": more_parameters,
        "templates": more_templates,
        "examples": more_examples,
        "common_errors": more_errors,
    }
    lists = partial(_texts, fields)
    made = Pattern(
        id=f"{folder}/{name}",
        name=name,
        title=told["title"] or re.sub(r"[_-]", " ", name).capitalize(),
        description=told["description"],
        category=told["category"],
        difficulty=told["difficulty"].lower(),
        backend_type=aliases.backend_name(told["backend_type"]),
        use_cases=lists("use_cases"),
        intents=lists("intents"),
        tags=lists("tags"),
        priority=priority(values.get("priority"), _place(fields, "priority")),
        related_patterns=lists("related_patterns"),
        parameters=read_parameters,
        templates=read_templates,
        examples=tuple(replace(example, parameters=plain(example.parameters)) for example in read_examples),
        common_errors=read_errors,
        best_practices=_practices(fields),
        syntax=prose(values.get("syntax")),
        extra=plain(fields.extra | {key: more for key, more in beside.items() if more}),
    )
    made = replace(made, digest=digest(made))
    return replace(made, extra={"library": plain(library), **made.extra}) if library else made


def digest(pattern: Pattern) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of what a pattern says, as JSON with sorted keys.

    Where it stands (source, line) and what its library tells of itself are not in it.
    """
    said = {name: getattr(pattern, name) for name in Pattern.__slots__ if name not in ("source", "line", "digest")}
    text_of_it = json.dumps(said, sort_keys=True, separators=(",", ":"), default=_fields_of)
    return hashlib.sha256(text_of_it.encode("ascii")).hexdigest()[:16]


def _fields_of(part: Any) -> Json:
    return {name: getattr(part, name) for name in part.__slots__}


def _name(fields: Sorted, folder: str) -> str:
    name = text(fields.values.get("name"), _place(fields, "name"))
    if not name:
        raise Misfit(("name",), MISSING)
    if not _NAME.fullmatch(name):
        raise Misfit(_place(fields, "name"), f"{name!r} may hold letters, digits, '_', '-' and '.' only")
    if len(f"{folder}/{name}") > MOST_ID_CHARS:
        raise Misfit(_place(fields, "name"), f"at most {MOST_ID_CHARS} characters with its folder")
    return name


def _texts(fields: Sorted, key: str) -> tuple[str, ...]:
    place = _place(fields, key)
    separator = "," if place[0] in _COMMA_SEPARATED else "\n"
    return texts(fields.values.get(key), place, separator=separator)


def _practices(fields: Sorted) -> str:
    rule = chunks.rules(fields.values.get("rule"), _place(fields, "rule"))
    return "\n".join(told for told in (prose(fields.values.get("best_practices")), rule) if told)


def _place(fields: Sorted, key: str) -> Place:
    return (fields.written.get(key, key),)
