"""The keys of pattern files and the other names that libraries use for them.

``useCases``, ``use-cases`` and ``Use Cases`` are spellings of ``use_cases`` and need no entry in these tables.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from loom_worker.core.values.json import Json

Keys = Mapping[str, tuple[str, ...]]
"""Each key with its other names; if a file has several of them, the first one counts."""

PATTERN: Keys = {
    "name": ("id", "key", "slug"),
    "title": ("display_name", "heading"),
    "description": ("summary", "desc"),
    "category": ("domain", "group", "topic"),
    "difficulty": ("level", "complexity"),
    "backend_type": ("backend", "engine", "dialect"),
    "use_cases": ("when_to_use", "scenarios"),
    "intents": ("trigger_conditions", "triggers", "trigger", "keywords", "phrases", "questions"),
    "tags": ("tag",),
    "priority": ("importance",),
    "related_patterns": ("related", "see_also"),
    "parameters": ("params", "variables", "placeholders"),
    "templates": ("template", "sql", "prompt", "query", "content", "text"),
    "examples": ("example", "samples"),
    "common_errors": ("errors", "pitfalls", "common_mistakes", "troubleshooting"),
    "best_practices": ("practices", "guidelines", "tips"),
    "rule": ("rules",),
    "syntax": ("grammar",),
}
PARAMETER: Keys = {
    "name": ("key",),
    "type": ("data_type",),
    "required": ("is_required", "mandatory"),
    "description": ("desc", "summary"),
    "example": ("sample", "examples"),
    "default": ("default_value",),
}
TEMPLATE: Keys = {
    "name": ("id", "title"),
    "content": ("sql", "template", "text", "prompt", "query", "body", "code"),
    "description": ("desc", "summary", "purpose"),
    "required_parameters": ("requires", "parameters", "params"),
    "output_format": ("output", "format"),
}
EXAMPLE: Keys = {
    "name": ("title",),
    "description": ("input", "question", "query", "prompt", "request", "desc"),
    "parameters": ("params", "values", "arguments"),
    "expected_result": ("output", "expected_output", "expected", "result", "response", "answer"),
    "notes": ("note", "explanation", "comment"),
}
COMMON_ERROR: Keys = {
    "error": ("message", "problem", "symptom", "mistake", "name"),
    "cause": ("reason", "why"),
    "solution": ("fix", "resolution", "remedy", "workaround"),
}
RULE: Keys = {
    "condition": ("when", "if"),
    "action": ("then", "do"),
    "rationale": ("because", "reason", "why"),
}
LIBRARY: Keys = {
    "name": ("id",),
    "version": (),
    "domain": ("category",),
    "description": ("summary", "desc"),
    "difficulty": PATTERN["difficulty"],
    "backend_type": PATTERN["backend_type"],
}
"""Keys of a library's ``metadata``, or of the mapping that holds its ``patterns``."""

BACKENDS = {
    "sql": (),
    "sqlite": ("sqlite3",),
    "postgresql": ("postgres", "pg"),
    "mysql": (),
    "mariadb": (),
    "duckdb": (),
    "rest": ("rest_api", "http", "api"),
    "documents": ("document", "docs", "files"),
    "mcp": (),
}
"""Values of ``backend_type``, with their other names."""
DIFFICULTIES = ("beginner", "intermediate", "advanced")


@dataclass(frozen=True, slots=True)
class SortedKeys:
    """A mapping of a file, by the keys that Loom knows; keys without a value count as absent."""

    values: Json
    written: Mapping[str, str]
    """The spelling in the file of each key in ``values``."""
    extra: Json
    """All other keys with their values, overruled ones included."""
    overruled: Mapping[str, str]
    """Keys of ``extra`` that mean the same as another key; mapped to the one that counts, as the file spells it."""


def sort(mapping: Mapping[Any, Any], keys: Keys) -> SortedKeys:
    """Find which key of a table each key of a mapping means; the key itself counts before its other names."""
    ranks = _ranks(tuple(keys.items()))
    best: dict[str, tuple[int, Any]] = {}
    losing: dict[Any, str] = {}
    for key, value in mapping.items():
        known = ranks.get(key) or ranks.get(_folded(key)) if isinstance(key, str) and value is not None else None
        if known is None:
            continue
        meant, rank = known
        if meant in best and best[meant][0] <= rank:
            losing[key] = meant
            continue
        if meant in best:
            losing[best[meant][1]] = meant
        best[meant] = (rank, key)
    winning = {key: meant for meant, (_, key) in best.items()}
    extra = {
        str(key): value
        for key, value in mapping.items()
        if key not in winning and not (value is None and is_known(key, keys))
    }
    return SortedKeys(
        values={meant: mapping[key] for key, meant in winning.items()},
        written={meant: key for key, meant in winning.items()},
        extra=extra,
        overruled={key: best[meant][1] for key, meant in losing.items()},
    )


def is_known(key: object, keys: Keys) -> bool:
    """Whether a key, or another name or spelling of one, stands in a table."""
    return isinstance(key, str) and _folded(key) in _ranks(tuple(keys.items()))


def all_names(keys: Keys) -> tuple[str, ...]:
    """The keys of a table and their other names."""
    return tuple(dict.fromkeys(name for key, others in keys.items() for name in (key, *others)))


def backend_name(text: str) -> str:
    """A backend's usual name for any of its names; an unknown name stays as it is."""
    lowered = text.lower().replace("-", "_")
    return next((name for name, others in BACKENDS.items() if lowered in (name, *others)), text)


@lru_cache(maxsize=32)
def _ranks(keys: tuple[tuple[str, tuple[str, ...]], ...]) -> dict[str, tuple[str, int]]:
    """Each name, as it is and folded, to the key it means and its rank; the key's own spellings rank first."""
    ranks: dict[str, tuple[str, int]] = {}
    for key, _ in keys:
        ranks[key] = (key, 0)
        ranks.setdefault(_folded(key), (key, 1))
    for key, others in keys:
        for rank, other in enumerate(others, start=2):
            ranks.setdefault(other, (key, rank))
            ranks.setdefault(_folded(other), (key, rank))
    return ranks


@lru_cache(maxsize=1024)
def _folded(key: str) -> str:
    return re.sub(r"[^a-z0-9]", "", key.lower())
