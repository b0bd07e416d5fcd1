"""What the loop works with. wiring builds it; tests build it from real parts on temporary places."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from loom_worker.core.settings import LimitSettings, Settings
from loom_worker.core.values.agents import Agent
from loom_worker.core.values.chat import ToolSpec, ToolUse
from loom_worker.core.values.content import Alone, Content
from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.json import Json
from loom_worker.core.values.memory import Remembered
from loom_worker.core.values.sessions import Choice
from loom_worker.core.values.skills import SkillShelf
from loom_worker.core.values.tokens import Frame
from loom_worker.core.values.tools import Caller, Occasion, Outcome, Tool
from loom_worker.core.values.turns import Call, Turn
from loom_worker.events.flusher import Flusher
from loom_worker.events.log import EventLog
from loom_worker.lanes.lanes import Lanes
from loom_worker.lanes.lease_renewer import HeldLease, LeaseRenewer
from loom_worker.llm.model import Model
from loom_worker.memory.layers import Count
from loom_worker.memory.pressure import L1Room
from loom_worker.store.calls import Calls
from loom_worker.store.claims import Claims
from loom_worker.store.journal import Journal
from loom_worker.store.memory import Memories
from loom_worker.tools.registry import Prepared, Registry
from loom_worker.turn.cancel_requests import CancelRequests
from loom_worker.turn.model_watch import ModelWatch, WaitTeller
from loom_worker.turn.ownership import Ownership
from loom_worker.turn.store_retry import Stopping, until_written


@dataclass(frozen=True, slots=True)
class AgentRuntime:
    """An agent with everything in its hands."""

    agent: Agent
    model: Model
    count: Count
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
    kinds: frozenset[str] = frozenset()
    """What the agent works on, in the words of patterns' backend_type: ``sql`` and the database's name, ``rest``…"""
    compressor: Model | None = None
    """Writes summaries and ranks what a search found; None: there is no LLM to do it."""
    compressor_budget_tokens: int = 0
    """What may be sent to it, in tokens as ``count`` counts them."""
    shelf: SkillShelf = field(default_factory=SkillShelf)
    """The skills of the session's workspace, of the same look that decided on the tool that reads them."""
    late: Mapping[str, Occasion] = field(default_factory=dict)
    """Tools that are shown only once there is an occasion, by name; empty where the window has room for all."""

    @property
    def least_specs(self) -> tuple[ToolSpec, ...]:
        """The tools that every request shows."""
        return tuple(spec for spec in self.specs if spec.name not in self.late)

    def tool(self, name: str) -> Tool | None:
        """A tool that the agent has, and that the session may call as things stand now."""
        permitted = self.registry.permitted(self.allowed, read_only=self.agent.is_read_only)
        return next((tool for tool in permitted if tool.spec.name == name), None)

    def prepared(self, use: ToolUse) -> Prepared:
        """A call as it may run, or why it may not."""
        return self.registry.prepared(use, self.allowed, read_only=self.agent.is_read_only)


@dataclass(frozen=True, slots=True)
class PromptContext:
    """What stands beside a user's message: the date, patterns, skills."""

    text: str
    patterns: tuple[Json, ...] = ()
    """Of each its id, score, confidence, and version: the digest of its text."""
    skills: tuple[Json, ...] = ()
    """Of each its name, and how the message called for it."""


@dataclass(frozen=True, slots=True)
class Dispatcher:
    """How this process reaches other processes, by ids alone."""

    wake: Callable[[str], None]
    """Wake a lane."""
    call: Callable[[str, Call], None]
    """(turn id, call): send one call to the tool queue."""
    fan_out: Callable[[str, str, Sequence[Call], str], None]
    """(lane, turn id, calls, ticket): send calls to the tool queue; when all are done the lane is woken."""
    deliver: Callable[[str], None]
    """Send a webhook delivery now."""
    summarize: Callable[[str], None]
    """Have a lane's memory compressed."""
    run_isolated: Callable[[str, str, str, int], int]
    """(lane, token, turn id, fence): run a claimed turn in a process that runs nothing else; its exit status."""


@dataclass(frozen=True, slots=True)
class TurnWorker:
    """The parts of a worker process."""

    settings: Settings
    worker: str
    """This process' name, never used before."""
    claims: Claims
    journal: Journal
    calls: Calls
    memories: Memories
    lanes: Lanes
    keeper: LeaseRenewer
    events: EventLog
    dispatcher: Dispatcher
    runtime: Callable[[str, Choice, str], AgentRuntime]
    """(agent, what the session chose instead of its own, its workspace)."""
    beside: Callable[[Turn, AgentRuntime], PromptContext]
    """What of patterns and skills stands beside a turn's question."""
    standing: Callable[[AgentRuntime], str]
    """What the system text of a new session says of the workspace's skills."""
    version_of: Callable[[str], str | None]
    """The digest of a pattern as it reads now, by its id."""
    run_tool: Callable[[Tool, Json, Caller], Outcome]
    """Run a tool with arguments that passed its schema; what it does ends in an Outcome."""
    concluded: Callable[[Call, Outcome, Caller], Call]
    """The call with what is stored and sent of an outcome: whole, or a reference, or an error's line and id."""
    open_breakers: Callable[[Sequence[str]], Mapping[str, float]]
    """Of these circuit breakers those that are open, with the seconds until they let a call try."""
    alive_workers: Callable[[], frozenset[str]]
    waits: WaitTeller
    webhook_body: Callable[[Turn], str]
    stopping: Stopping
    flusher: Flusher = field(default_factory=Flusher)
    content: Content = field(default_factory=Alone)
    """What this process has of agents' content beside what others have accepted."""
    is_isolated: bool = False
    """True in the process of a last attempt."""
    clock_ms: Callable[[], int] = field(default=now_ms)


@dataclass(frozen=True, slots=True)
class Execution:
    """One worker's time with one turn."""

    worker: TurnWorker
    runtime: AgentRuntime
    hold: HeldLease
    began_s: float
    """Monotonic."""
    ran_before_ms: int
    ownership: Ownership
    cancel_requests: CancelRequests
    watch: ModelWatch
    """Over the model's calls."""
    recollect: Callable[[], Remembered]
    """What is remembered of the session, read when it is first asked for and the same from then on."""
    standing: Callable[[], str]
    """What a system text says of skills, likewise."""

    def write(self, write: Callable[[], None]) -> None:
        """Write to the journal, again and again while the database does not answer and the turn is ours."""
        until_written(write, stopping=self.worker.stopping, lost=self.hold.lost)

    @property
    def limits(self) -> LimitSettings:
        """The settings' limits, with the agent's own where it has some."""
        limits, agent = self.worker.settings.limits, self.runtime.agent
        return replace(
            limits,
            turn_timeout_s=agent.timeout_s or limits.turn_timeout_s,
            max_llm_calls=agent.max_llm_calls or limits.max_llm_calls,
            max_tool_calls=limits.max_tool_calls if agent.max_tool_calls is None else agent.max_tool_calls,
        )

    @property
    def run_ms(self) -> int:
        """Milliseconds the turn has run, over all its owners."""
        return self.ran_before_ms + int((time.monotonic() - self.began_s) * 1000)
