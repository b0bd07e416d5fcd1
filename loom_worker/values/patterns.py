"""A pattern of domain knowledge and how well it fits a question."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from loom_worker.values.json import Json


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
class Pattern:
    """One pattern, as its YAML says it (API: flat pattern YAML)."""

    id: str
    """Path-qualified: ``<library folder>/<name>``, such as ``sql/top_n``."""
    name: str
    title: str
    description: str = ""
    category: str = ""
    difficulty: str = ""
    backend_type: str = ""
    use_cases: tuple[str, ...] = ()
    intents: tuple[str, ...] = ()
    related_patterns: tuple[str, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    templates: Mapping[str, str] = field(default_factory=dict)
    """Template name to its text, placeholders ``{{x}}`` or ``{{.x}}`` unfilled."""
    best_practices: str = ""
    extra: Json = field(default_factory=dict)
    """Keys of the file that are not known here, kept as they are."""
    source: str = ""
    """The file it came from, relative to its library root."""


@dataclass(frozen=True, slots=True)
class PatternMatch:
    """A candidate for a question."""

    pattern: Pattern
    score: float
    """Cosine similarity, 0-1."""
    terms: tuple[str, ...] = ()
    """The words that counted, the weightiest first."""
