"""An agent: who answers, with which model, tools and data."""

from dataclasses import dataclass, field

from loom_worker.values.json import Json
from loom_worker.values.memory import MemoryPolicy


@dataclass(frozen=True, slots=True)
class Compressor:
    """The model that writes summaries and ranks what a search found; None means as the agent's own."""

    provider: str | None = None
    model: str | None = None
    max_context_tokens: int | None = None
    """Its window; None: LOOM_MAX_CONTEXT_TOKENS."""


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent as its YAML says it (API: agent YAML); None means the setting of the process holds."""

    name: str
    version: str = "1"
    description: str = ""
    system_prompt: str = ""
    provider: str | None = None
    model: str | None = None
    max_tokens: int | None = None
    max_context_tokens: int | None = None
    reserved_output_tokens: int | None = None
    stop_sequences: tuple[str, ...] = ()
    backend_url: str | None = None
    """SQLAlchemy URL; None: LOOM_BACKEND_URL."""
    has_backend: bool = True
    tools: tuple[str, ...] | None = None
    """Names the agent may use; None: every tool there is."""
    max_llm_calls: int | None = None
    max_tool_calls: int | None = None
    timeout_s: float | None = None
    patterns_enabled: bool = True
    min_confidence: float = 0.18
    """Score (0-1) below which no pattern is put beside the message: 115 of 116 questions about the shop were above
    it, 100 of 104 others below (tests/unit/patterns)."""
    max_patterns_per_turn: int = 1
    memory: MemoryPolicy = field(default_factory=MemoryPolicy)
    compressor: Compressor = field(default_factory=Compressor)
    databases: tuple[str, ...] = ()
    """Databases (SQLite: files) beside its own that a session may switch the agent to: ``backend.scope.databases``."""
    unknown_keys: tuple[str, ...] = ()
    """Keys of the file that Loom does not know, as dotted paths; kept in ``raw`` and reported."""
    raw: Json = field(default_factory=dict)
    source: str = ""
    """The file it came from."""
