"""What a turn works with that depends on its agent; ``runtime/agents.py`` builds it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from loom_worker.core.values.agents import SCRIPTED, Agent, ModelChoice
from loom_worker.core.values.chat import Frame, ToolSpec, ToolUse
from loom_worker.core.values.guardrails import Stage
from loom_worker.core.values.json import Json
from loom_worker.core.values.learned import LearnedLayer
from loom_worker.core.values.sessions import Choice
from loom_worker.core.values.skills import SkillSet
from loom_worker.core.values.tools import Occasion, Tool
from loom_worker.core.values.turns import Claim, Turn
from loom_worker.judge.evaluate import JudgeModel
from loom_worker.judge.injection import InjectionCheck
from loom_worker.llm.model import Model
from loom_worker.memory.layers import Count
from loom_worker.memory.pressure import L1Room
from loom_worker.memory.results import Sizes
from loom_worker.tools.registry import Prepared, Registry

LOCAL_TURN_S = 3_600.0
"""Least time of a turn whose model is on the user's own machine."""


@dataclass(frozen=True, slots=True)
class AgentRuntime:
    """An agent with its model, its tools and its budgets, as one session has chosen them."""

    agent: Agent
    model: Model
    sizes: Sizes
    """Counts tokens as the model does, and remembers what past turns take."""
    registry: Registry
    specs: tuple[ToolSpec, ...]
    allowed: tuple[str, ...] | None
    """Names of the tools that may be called: the session's choice of the agent's; None: all."""
    schema: str
    """The backend's schema as text, for ROM."""
    input_budget_tokens: int
    """The model's window without the reserve for its reply."""
    l1: L1Room
    max_tokens: int
    typical: float
    """The provider's usual tokens of a text over ``count``'s, which never counts too few; at most 1."""
    frame: Frame
    """What the provider usually adds to texts."""
    llm: ModelChoice = SCRIPTED
    """The model by its resolved name, with what else its block says."""
    kinds: frozenset[str] = frozenset()
    """What the agent works on, in the words of patterns' backend_type: ``sql`` and the database's name, ``rest``…"""
    sees: frozenset[str] = frozenset()
    """Kinds of media that the model is shown; a line stands for others."""
    compressor: Model | None = None
    """Writes summaries and ranks what a search found; None: there is no LLM to do it."""
    compressor_budget_tokens: int = 0
    """What may be sent to it, in tokens as ``count`` counts them."""
    judge: JudgeModel | None = None
    """For its LLM judges; None: there is no LLM to ask."""
    skill_set: SkillSet = field(default_factory=SkillSet)
    """The skills of the session's workspace, of the same look that decided on the tool that reads them."""
    late: Mapping[str, Occasion] = field(default_factory=dict)
    """Tools that are shown only once there is an occasion, by name; empty where all are shown."""
    checks: Mapping[Stage, InjectionCheck] = field(default_factory=dict)
    """Models that look for injection where the rules find none, by stage."""

    @property
    def least_turn_s(self) -> float:
        """A turn may run for so long at least, unless its agent's file says otherwise."""
        return LOCAL_TURN_S if self.llm.is_local else 0.0

    @property
    def least_specs(self) -> tuple[ToolSpec, ...]:
        """The tools that every request shows."""
        return tuple(spec for spec in self.specs if spec.name not in self.late)

    @property
    def count(self) -> Count:
        """The tokens of a text, as the model would count them; never too few."""
        return self.sizes.count

    def tool(self, name: str) -> Tool | None:
        """A tool that the agent has, and that the session may call as things stand now."""
        permitted = self.registry.permitted(self.allowed, read_only=self.agent.is_read_only)
        return next((tool for tool in permitted if tool.spec.name == name), None)

    def prepared(self, use: ToolUse) -> Prepared:
        """A call as it may run, or why it may not."""
        return self.registry.prepared(use, self.allowed, read_only=self.agent.is_read_only)


@dataclass(frozen=True, slots=True)
class PromptContext:
    """What is added to a user's message: the date, facts, patterns, skills."""

    text: str
    patterns: tuple[Json, ...] = ()
    """Id, score, confidence, and version: the digest of its text."""
    skills: tuple[Json, ...] = ()
    """The name of each, and how the message called for it."""


class AgentRuntimes(Protocol):
    """Where agents are built (``runtime/agents.py``: AgentRegistry)."""

    def runtime(self, name: str, choice: Choice = ..., workspace: str | None = ...) -> AgentRuntime:
        """The agent of this name, with what a session chose instead of the agent's own.

        Args:
            workspace: whose skills it has.
        """

    def keeping(self, claim: Claim) -> Claim:
        """The claim with the version of its agent that the session keeps, which is decided now if it keeps none.

        Raises:
            Unavailable: the database did not answer.
        """

    def window(self, name: str) -> tuple[int, int]:
        """The window of an agent's model, and what of it is reserved for its reply, in tokens."""

    def tools(self, name: str, version: str | None = ..., workspace: str | None = ...) -> tuple[Tool, ...]:
        """An agent's tools, as of a stored version or of now, as a workspace has them; no model is built.

        Raises:
            LoomError: the agent cannot work.
        """

    def kinds(self, name: str) -> frozenset[str]:
        """What an agent works on, see AgentRuntime.kinds."""

    def prepared(self, name: str, use: ToolUse, version: str | None = ...) -> tuple[Json, str | None]:
        """A call's arguments as the agent's tool takes them, and why it would not; see ``tools``."""


class PromptKnowledge(Protocol):
    """Finds what to add to a message (``runtime/prompt_context.py``: Knowledge)."""

    def prompt_context(self, turn: Turn, runtime: AgentRuntime) -> PromptContext:
        """The date, and the facts, skills and patterns that a turn's question calls for."""

    def standing(self, runtime: AgentRuntime) -> str:
        """What the system text of a new session says of the workspace's skills."""

    def learned(self, workspace: str, lane: str, agent: Agent, version: int | None) -> tuple[int, LearnedLayer | None]:
        """The version of the learned layer that a session has, and what is in it; 0 and None: none.

        Args:
            version: as the session's first claim settled it; None: there was none, and what it would be is looked up.
        """

    def version_of(self, pattern_id: str) -> str | None:
        """The digest of a pattern as it reads now."""
