"""The parts of a worker process that turns run on; ``runtime/build.py`` puts them together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

from loom_worker.core.dispatcher import Dispatcher
from loom_worker.core.monitor import UNMONITORED, Monitor
from loom_worker.core.settings import LimitSettings, Settings
from loom_worker.core.stopping import Stopping, retry_until_stored
from loom_worker.core.values.agents import Agent, Content
from loom_worker.core.values.budgets import Payer, Settlement
from loom_worker.core.values.chat import Shape
from loom_worker.core.values.guardrails import Guardrails
from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.json import Json
from loom_worker.core.values.memory import Remembered
from loom_worker.core.values.tools import Caller
from loom_worker.core.values.turns import Claim
from loom_worker.core.values.workspaces import Rules
from loom_worker.events.log import EventLog
from loom_worker.events.turn_signals import TurnSignals
from loom_worker.events.writer import EventFlusher
from loom_worker.judge.python_judges import PythonJudges
from loom_worker.lanes.lanes import Lanes
from loom_worker.lanes.lease_renewer import HeldLease, LeaseRenewer, LiveWorkers
from loom_worker.lanes.slots import FreeSlots
from loom_worker.llm.model import PaidTry
from loom_worker.store.agent_messages import AgentMessages
from loom_worker.store.budgets import Budgets
from loom_worker.store.calls import Calls
from loom_worker.store.children import Children
from loom_worker.store.claims import Claims
from loom_worker.store.journal import Journal
from loom_worker.store.memory import Memories
from loom_worker.store.verdicts import Verdicts
from loom_worker.tools.execution import ToolExecutor
from loom_worker.trace.flush import Flusher, NoTraces
from loom_worker.turn.agent_runtime import AgentRuntime, AgentRuntimes, PromptKnowledge
from loom_worker.turn.context import HISTORY_MESSAGES, Rom, new_rom
from loom_worker.turn.control import CancelRequests, Ownership, RunClock, TurnWebhook
from loom_worker.turn.state import TurnState
from loom_worker.turn.waits import ModelWatch, WaitTeller
from loom_worker.webhook.body import WebhookBodies
from loom_worker.workflows.advance import RunAdvancer

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TurnWorker:
    """The parts of a worker process."""

    settings: Settings
    name: str
    """This process' name, never used before."""
    claims: Claims
    journal: Journal
    calls: Calls
    verdicts: Verdicts
    memories: Memories
    budgets: Budgets
    lanes: Lanes
    slots: FreeSlots
    signals: TurnSignals
    renewer: LeaseRenewer
    events: EventLog
    dispatcher: Dispatcher
    runs: RunAdvancer
    children: Children
    messages: AgentMessages
    agents: AgentRuntimes
    knowledge: PromptKnowledge
    tools: ToolExecutor
    judges: PythonJudges
    workers: LiveWorkers
    waits: WaitTeller
    bodies: WebhookBodies
    stopping: Stopping
    traces: Flusher | NoTraces = field(default_factory=NoTraces)
    """Is told of traces that are to be exported."""
    flusher: EventFlusher = field(default_factory=EventFlusher)
    content: Content = field(default_factory=Content)
    """Compares this process' content of agents with what others have accepted."""
    monitor: Monitor = UNMONITORED
    is_isolated: bool = False
    """True in the process of a last attempt."""
    clock_ms: Callable[[], int] = field(default=now_ms)


class SessionContext:
    """What a turn's session brings along, read when it is first asked for and the same from then on."""

    def __init__(self, worker: TurnWorker, runtime: AgentRuntime, claim: Claim) -> None:
        self._worker = worker
        self._runtime = runtime
        self._claim = claim

    @cached_property
    def memory(self) -> Remembered:
        """What is remembered of the session."""
        return self._worker.memories.load(self._claim.turn.lane, limit=HISTORY_MESSAGES, claim=self._claim)

    @cached_property
    def made_rom(self) -> Rom:
        """The system text: as first sent, else made now."""
        if self._claim.rom is not None:
            return Rom(self._claim.rom)
        knowledge, turn = self._worker.knowledge, self._claim.turn
        learned = knowledge.learned(turn.workspace, turn.lane, self._runtime.agent, turn.learned_version)
        return new_rom(self._runtime, knowledge, learned)

    @property
    def rom(self) -> str:
        """The system text alone."""
        return self.made_rom.text


def guardrails(agent: Agent, rules: Rules) -> Guardrails:
    """Those of an agent and of a workspace together: of two actions for the same the stricter one holds."""
    return agent.guardrails.with_those_of(Guardrails.of(rules.guardrails))


@dataclass(frozen=True, slots=True)
class Execution:
    """One worker's time with one turn."""

    worker: TurnWorker
    claim: Claim
    runtime: AgentRuntime
    held: HeldLease
    clock: RunClock
    ownership: Ownership
    cancel_requests: CancelRequests
    watch: ModelWatch
    """Over the model's calls."""
    session: SessionContext
    webhook: TurnWebhook

    def write(self, write: Callable[[], T]) -> T:
        """Write to the journal, again and again while the database does not answer and the turn is ours."""
        return retry_until_stored(write, stopping=self.worker.stopping, lost=self.held.lost)

    @property
    def shape(self) -> Shape | None:
        """The form that the answer must have; its name is that of no tool."""
        if not (form := self.claim.turn.response_format):
            return None
        is_taken = any(spec.name == form["name"] for spec in self.runtime.specs)
        return Shape(f"{form['name'][:55]}_as_json" if is_taken else form["name"], form["schema"])

    @property
    def payer(self) -> Payer:
        """On whose budgets the turn's calls are made."""
        return self.claim.payer(self.runtime.agent.budget)

    def caller(self, call_id: str = "") -> Caller:
        """On whose behalf tools run and models are asked."""
        turn = self.claim.turn
        ids = (turn.lane, turn.session_id, turn.workspace, turn.id, call_id)
        return Caller(*ids, turn.agent, turn.trace_id, turn.run_id or "")

    @property
    def guardrails(self) -> Guardrails:
        """The guardrails of agent and workspace together."""
        return guardrails(self.runtime.agent, self.claim.rules)

    @property
    def holds_calls(self) -> bool:
        """True if calls may not hold what answers may: text that may be a call is told once it is known to be none."""
        told = {kind for kind, action in self.guardrails.output.items() if action == "flag"}
        kept = self.guardrails.output.keys() - told
        return any(action != "flag" and kind not in kept for kind, action in self.guardrails.arguments.items())

    @property
    def is_limited(self) -> bool:
        """True if a budget limited the turn when it was claimed; one that is set later counts from the next claim."""
        return self.claim.is_limited(self.runtime.agent.budget)

    def settlement(self, state: TurnState) -> Settlement | None:
        """What the journal does not have yet takes off budgets; None: nothing."""
        if not state.has_unsaved_spending:
            return None
        return Settlement(self.payer, state.unsaved_spending, state.held)

    def with_tries(self, state: TurnState, tries: Sequence[PaidTry] | None = None) -> TurnState:
        """The state with what tries used that came to nothing; None: those of the reply that was just needed."""
        tries = self.watch.lost() if tries is None else tries
        for model in dict.fromkeys(each.model for each in tries):
            same = [each for each in tries if each.model == model]
            state = state.tried(model or self.runtime.model.name, same, self.runtime.count)
        return state

    @property
    def limits(self) -> LimitSettings:
        """The settings' limits, with the agent's own where it has some."""
        limits, agent = self.worker.settings.limits, self.runtime.agent
        return replace(
            limits,
            turn_timeout_s=agent.timeout_s or max(limits.turn_timeout_s, self.runtime.least_turn_s),
            max_llm_calls=agent.max_llm_calls or limits.max_llm_calls,
            max_tool_calls=limits.max_tool_calls if agent.max_tool_calls is None else agent.max_tool_calls,
        )

    @property
    def own_limits(self) -> frozenset[str]:
        """Limits that the agent's file sets, in its words."""
        agent = self.runtime.agent
        own = {"timeout_seconds": agent.timeout_s, "max_turns": agent.max_llm_calls}
        return frozenset(name for name, limit in own.items() if limit)

    def progress(self, state: TurnState) -> Json:
        """The columns of a turn that follow from what was done."""
        return {
            "usage": state.usage.as_json(),
            "run_ms": self.clock.ms(),
            "patterns": list(state.patterns),
            "first_token_ms": state.first_token_ms,
            "agent_version": self.claim.turn.agent_version,
            "model": state.turn.model,
            "response_format": self.claim.turn.response_format,
            **({"judge": state.judge} if state.verdicts else {}),
        }
