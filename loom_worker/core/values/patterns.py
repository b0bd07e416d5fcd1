"""Patterns of domain knowledge: what a file says, how well it fits a question, and what came of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from loom_worker.core.values.json import Json


@dataclass(frozen=True, slots=True)
class Parameter:
    """A placeholder of a pattern's templates."""

    name: str
    type: str = "string"
    is_required: bool = False
    description: str = ""
    example: str = ""
    default: str | None = None


@dataclass(frozen=True, slots=True)
class Template:
    """A text with placeholders ``{{x}}`` or ``{{.x}}``, unfilled."""

    text: str
    description: str = ""
    required_parameters: tuple[str, ...] = ()
    output_format: str = ""


@dataclass(frozen=True, slots=True)
class Example:
    """A use of the pattern; ``{input, output}`` of a file becomes description and result."""

    name: str = ""
    description: str = ""
    parameters: Json = field(default_factory=dict)
    expected_result: str = ""
    notes: str = ""


@dataclass(frozen=True, slots=True)
class CommonError:
    """What goes wrong when the pattern is used, and what helps."""

    error: str
    cause: str = ""
    solution: str = ""


@dataclass(frozen=True, slots=True)
class Pattern:
    """One pattern, as its YAML says it (API: flat pattern YAML, or an entry of a library file)."""

    id: str
    """Path-qualified: ``<library folder>/<name>``, such as ``sql/top_n``."""
    name: str
    title: str
    description: str = ""
    category: str = ""
    difficulty: str = ""
    backend_type: str = ""
    """What it works on: sql, one database's name, rest, documents; empty: anything."""
    use_cases: tuple[str, ...] = ()
    intents: tuple[str, ...] = ()
    """What people say when they need it; a library file's ``trigger_conditions`` are these."""
    tags: tuple[str, ...] = ()
    priority: int = 50
    """0-100; settles which of two patterns that fit equally well comes first."""
    related_patterns: tuple[str, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    templates: Mapping[str, Template] = field(default_factory=dict)
    examples: tuple[Example, ...] = ()
    common_errors: tuple[CommonError, ...] = ()
    best_practices: str = ""
    syntax: str = ""
    extra: Json = field(default_factory=dict)
    """Keys of the file that are not known here, kept as they are."""
    source: str = ""
    """The file it came from, relative to its library root."""
    line: int = 1
    """Where in that file it begins."""
    digest: str = ""
    """Hexadecimal, 16 characters: another one as soon as anything the pattern says is changed."""


@dataclass(frozen=True, slots=True)
class PatternMatch:
    """A candidate for a question."""

    pattern: Pattern
    score: float
    """How alike question and pattern are, 0-1."""
    terms: tuple[str, ...] = ()
    """The words that counted, the weightiest first."""
    confidence: float = 0.0
    """The chance (0-1) that it is the right pattern, as measured on labelled questions."""

    def as_json(self) -> Json:
        return {
            "id": self.pattern.id,
            "object": "pattern_match",
            "title": self.pattern.title,
            "score": round(self.score, 4),
            "confidence": round(self.confidence, 4),
            "terms": list(self.terms),
        }


@dataclass(frozen=True, slots=True)
class PatternUpdateEvent:
    """A library was read anew: what is different now."""

    added: tuple[str, ...]
    """Ids, as those of ``changed`` and ``removed``."""
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    duration_ms: float
    """From the first look at the files to the new index being in use; waiting for further changes is not in it."""
    errors: tuple[str, ...]
    """Why files or patterns were left out or kept as they were, each as ``file:line: reason``."""
    patterns: int = 0
    """How many there are now."""


@dataclass(frozen=True, slots=True)
class PatternUse:
    """A pattern took part in a turn that has ended."""

    pattern_id: str
    digest: str
    how: Literal["matched", "loaded"]
    """Added to the question, or requested by the model with ``load_pattern``."""


@dataclass(frozen=True, slots=True)
class Effect:
    """What came of the turns that used a pattern as it reads now, in one workspace."""

    uses: int = 0
    """Turns that have ended; ``succeeded`` and ``failed`` of them count, those that somebody cancelled do not."""
    succeeded: int = 0
    failed: int = 0
    cost_usd: float = 0.0
    """Cost of all those turns together."""
    tokens: int = 0
    last_ms: int | None = None
