"""Remarks on the keys of a pattern: those that Loom does not know, and those that say a thing again."""

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from loom_worker.patterns import aliases
from loom_worker.patterns.aliases import Keys, sort
from loom_worker.patterns.fields import Place
from loom_worker.patterns.library_entries import Unit

Remark = tuple[Place, str, str]
"""The place within the pattern, what is remarked, and what to do."""

_PARTS: Mapping[str, Keys] = {
    "parameters": aliases.PARAMETER,
    "templates": aliases.TEMPLATE,
    "examples": aliases.EXAMPLE,
    "common_errors": aliases.COMMON_ERROR,
}


def of_keys(unit: Unit) -> Iterator[Remark]:
    """Remark on unknown keys, with the nearest known one, and on a key's other name beside the key itself."""
    yield from _mapping(unit.body, (), aliases.PATTERN)
    fields = sort(unit.body, aliases.PATTERN)
    for part, keys in _PARTS.items():
        if part in fields.values:
            for place, body in _bodies(fields.values[part], (fields.written[part],), keys):
                yield from _mapping(body, place, keys)


def _mapping(body: Mapping[Any, Any], place: Place, keys: Keys) -> Iterator[Remark]:
    fields = sort(body, keys)
    for key in fields.extra:
        if key in fields.overruled:
            winner = fields.overruled[key]
            advice = f"put all of it under {winner}, and remove {key}"
            yield (*place, key), f"{key} is another name of {winner}, which is there as well and counts", advice
        else:
            near = difflib.get_close_matches(key.lower(), aliases.all_names(keys), n=1, cutoff=0.75)
            advice = f"did you mean {near[0]}?" if near else "it is kept, and nobody is told of it"
            yield (*place, key), f"unknown key {key}", advice


def _bodies(value: Any, place: Place, keys: Keys) -> Iterator[tuple[Place, Mapping[Any, Any]]]:
    """The mappings of a part, whether it is a list, a mapping of names or a single one."""
    if isinstance(value, dict) and not any(isinstance(inside, dict) for inside in value.values()):
        if any(aliases.is_known(key, keys) for key in value):
            yield place, value
        return
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, body in entries:
        if isinstance(body, dict) and (len(body) > 1 or any(aliases.is_known(known, keys) for known in body)):
            yield (*place, key), body
