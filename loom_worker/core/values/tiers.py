"""The tiers in which an agent remembers more than its context holds: messages, summaries by date, facts, vectors."""

from dataclasses import dataclass
from typing import Literal

Scope = Literal["session", "user", "workspace"]
"""Whose conversations the memory tools look into, and whom a fact belongs to. A session without a user has, with
``user``, itself alone."""
Strategy = Literal["summarize", "heuristic"]
"""Who writes summaries by date: the agent's compressor, or Loom itself by choosing sentences."""
SCOPES: tuple[Scope, ...] = ("session", "user", "workspace")
EMBEDDING_PROVIDERS = ("openai", "ollama", "voyage", "local", "scripted")
STRATEGIES: tuple[Strategy, ...] = ("summarize", "heuristic")


@dataclass(frozen=True, slots=True)
class MemoryTiers:
    """An agent's ``sessions.memory`` (API: agent YAML), but for its active window, which is the limit of L1."""

    strategy: Strategy = "summarize"
    batch_size: int = 50
    """Messages that have left the active window and become one summary by date."""
    recent_messages: int = 1_000
    """The newest messages that ``memory_search`` looks at; all are kept."""
    has_summaries: bool = True
    extracts_facts: bool = True
    """False: only people and tools add facts."""
    has_knowledge: bool = True
    scope: Scope = "user"
    injects_facts: bool = False
    """True: the facts that a message is about are put beside it."""
    has_embeddings: bool = False
    embedding_model: str = ""
    """``provider/model``; empty where there are none."""
    users_write: bool = False
    """True: with the scope ``workspace``, what keys of users say becomes a fact of the workspace, too."""

    @property
    def learns(self) -> bool:
        """True if facts are found in what is said."""
        return self.has_knowledge and self.extracts_facts
