"""Agents with everything in their hands: model, tools, data and patterns, each built when first needed."""

import logging
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from loom_worker.agents.live import LiveAgents
from loom_worker.agents.load import Agents
from loom_worker.core.errors import LoomError
from loom_worker.core.settings import Settings
from loom_worker.core.values.agents import Agent
from loom_worker.core.values.chat import ToolUse, Usage
from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.json import Json
from loom_worker.core.values.sessions import Choice
from loom_worker.core.values.tools import Caller, Occasion, Tool
from loom_worker.llm import tokens
from loom_worker.memory.layers import tools_tokens
from loom_worker.memory.pressure import l1_room
from loom_worker.memory.recall_messages import MOST_BYTES
from loom_worker.memory.recall_rerank import DEADLINE_S, Reranker, ranked_at_once
from loom_worker.memory.recall_tools import RecallParts, recall_tools
from loom_worker.memory.recalled import RECALLED_SHARE
from loom_worker.memory.results import results_tokens
from loom_worker.patterns.tools import pattern_tools
from loom_worker.runtime.models import Absent, Models
from loom_worker.runtime.prompt_context import Knowledge
from loom_worker.runtime.tool_sets import Toolbox
from loom_worker.skills.files import read_skill_file_tool
from loom_worker.store.database import Database
from loom_worker.store.ledger import Charge, Ledger
from loom_worker.store.memory import Memories
from loom_worker.store.search import Search
from loom_worker.store.sessions import Sessions
from loom_worker.tools.more import MORE, more_tool
from loom_worker.tools.registry import Registry
from loom_worker.turn.runtime import Kit

log = logging.getLogger(__name__)

MOST_KITS = 256
"""Kits a process keeps: every choice of model, tools and database makes one more."""
TOOLS_SHARE = 0.10
"""Of the input budget (0-1): tools that take more are not all shown from the start. Where they take less, the cached
prefix is worth more than their room."""
AS_AGENT = Choice()


@dataclass(frozen=True, slots=True)
class Belt:
    """The tools of an agent, and the names of those it may call; None: all."""

    registry: Registry
    allowed: tuple[str, ...] | None
    late: Mapping[str, Occasion] = field(default_factory=dict)
    """Those that are shown only once there is an occasion."""


NOTHING = Belt(Registry(()), ())


class Kits:
    """All kits of a process."""

    def __init__(
        self,
        settings: Settings,
        agents: Agents | LiveAgents,
        database: Database,
        *,
        models: Models,
        toolbox: Toolbox,
        knowledge: Knowledge,
    ) -> None:
        self._settings = settings
        self._agents = agents
        self._database = database
        self._models = models
        self._knowledge = knowledge
        self._lock = threading.RLock()
        self._toolbox = toolbox
        self._kits: OrderedDict[tuple[str, Choice, str], Kit] = OrderedDict()

    def kit(self, name: str, choice: Choice = AS_AGENT, workspace: str | None = None) -> Kit:
        """The kit of an agent, with what a session chose instead of its own.

        Args:
            workspace: whose skills it has; None: of none, with the tool that reads them if there are any at all.
        """
        agents = self._agents.current(name)
        agent = agents.agents.get(name)
        why = "" if agent else _why_absent(name, agents)
        agent = agent or Agent(name, backend=None)
        if workspace is None:
            return self._kept(agent, choice, why, has_skills=self._knowledge.has_skills_anywhere(agent))
        shelf = self._knowledge.shelf(agent, workspace)
        # One that cannot be read now counts: its text may stand beside the message of a turn that goes on.
        kit = self._kept(agent, choice, why, has_skills=bool(shelf.skills or shelf.problems))
        return replace(kit, shelf=shelf) if shelf.skills else kit

    def _kept(self, agent: Agent, choice: Choice, why: str, *, has_skills: bool) -> Kit:
        """The kit as it was built before, as long as the agent and its tools are the same."""
        key = (agent.name, choice, why or f"{self._toolbox.stamp(agent)} {has_skills}")
        with self._lock:
            kit = self._kits.get(key)
        # Built outside of the lock: an agent whose servers are slow keeps no other waiting.
        if kit is None or (kit.agent is not agent and not why):
            kit = self._build(agent, choice, why, has_skills=has_skills)
        with self._lock:
            held = self._kits.get(key)
            kit = held if held is not None and held.agent is kit.agent else kit
            self._kits[key] = kit
            self._kits.move_to_end(key)
            if len(self._kits) > MOST_KITS:
                self._kits.popitem(last=False)
            return kit

    def tools(self, name: str) -> tuple[Tool, ...]:
        """The tools of an agent; no model and no index is built."""
        agent = self._agent(name)
        belt = self._belt(agent, AS_AGENT, has_skills=self._knowledge.has_skills_anywhere(agent))
        return belt.registry.permitted(belt.allowed, read_only=agent.is_read_only)

    @property
    def toolbox(self) -> Toolbox:
        """Where the tools of agents come from."""
        return self._toolbox

    def own(self, agent: Agent) -> tuple[Tool, ...]:
        """What Loom itself gives agents, also what needs a skill to be there; nothing is connected."""
        known = self._knowledge
        patterns = pattern_tools(known.library)
        common = (*self._toolbox.common, *self._toolbox.standing)
        return (*self._memory_tools(agent, AS_AGENT), *common, *patterns, read_skill_file_tool(known.skills))

    def kinds(self, name: str) -> frozenset[str]:
        """What an agent works on; nothing is built or connected."""
        return self._toolbox.kinds(self._agent(name))

    def prepared(self, name: str, use: ToolUse) -> tuple[Json, str | None]:
        """A call's arguments as the agent's tool takes them, and why it would not."""
        prepared = self.kit(name).prepared(use)
        return prepared.arguments, prepared.flaw

    def warm(self) -> None:
        """Build what the first turn would otherwise wait for."""
        kit = self.kit("default")
        self._knowledge.library.current()
        kit.count("warm up")
        self._models.warm()

    def close(self) -> None:
        """Close the connections of all backends."""
        self._toolbox.close()

    def _build(self, agent: Agent, choice: Choice, why: str, *, has_skills: bool) -> Kit:
        if why:
            return self._kit(agent, choice, NOTHING, Absent(why))
        try:
            belt = self._belt(agent, choice, has_skills=has_skills)
            return self._kit(agent, choice, self._fitted(agent, choice, belt), None)
        except LoomError as error:  # raised here it would stop the lanes of all its sessions, turn after turn
            log.error("agent %s cannot work: %s", agent.name, error)
            broken = Absent(f"The agent {agent.name!r} cannot work: {error}")
            return self._kit(agent, choice, NOTHING, broken)

    def _kit(self, agent: Agent, choice: Choice, belt: Belt, absent: Absent | None) -> Kit:
        chosen = self._models.chosen(agent, choice.model)
        window, reserved = self._window(agent)
        return Kit(
            agent=agent,
            model=absent or self._models.model(agent.provider, chosen),
            count=self._models.count(chosen),
            registry=belt.registry,
            specs=belt.registry.specs(belt.allowed, read_only=agent.is_read_only),
            allowed=belt.allowed,
            kinds=frozenset() if absent else self._toolbox.kinds(agent),
            schema="" if absent else self._toolbox.schema(agent, choice.backend),
            input_budget_tokens=window - reserved,
            l1=l1_room(
                window - reserved,
                policy=agent.memory,
                most_tokens=self._settings.llm.l1_tokens,
                typical=tokens.typical(chosen),
            ),
            max_tokens=min(agent.max_tokens or 8192, reserved),
            typical=tokens.typical(chosen),
            frame=tokens.frame(chosen),
            compressor=None if absent else self._models.compressor(agent, chosen),
            compressor_budget_tokens=(agent.compressor.max_context_tokens or window) - reserved,
            late=belt.late,
        )

    def window(self, name: str) -> tuple[int, int]:
        """The window of an agent's model, and what of it is reserved for its reply, in tokens."""
        return self._window(self._agent(name))

    def _agent(self, name: str) -> Agent:
        """The agent as its file is now; one that is gone has nothing of its own."""
        return self._agents.current(name).agents.get(name) or Agent(name, backend=None)

    def _window(self, agent: Agent) -> tuple[int, int]:
        """An agent with a window of its own reserves a tenth of that, or what its replies may take."""
        llm = self._settings.llm
        if agent.max_context_tokens is None:
            window, usual = llm.max_context_tokens, llm.reserved_output_tokens
        else:
            window = agent.max_context_tokens
            usual = max(window // 10, agent.max_tokens or 0)
        return window, min(agent.reserved_output_tokens or usual, window // 2)

    def _belt(self, agent: Agent, choice: Choice, *, has_skills: bool) -> Belt:
        """All tools of an agent; LoomError if its data cannot be used."""
        own = self._toolbox.own(agent, choice.backend)
        for problem in own.problems:
            log.warning("agent %s: %s", agent.name, problem)
        knowledge = self._knowledge
        readers = knowledge.skill_tools() if has_skills else ()
        automatic = (*self._memory_tools(agent, choice), *self._toolbox.standing, *readers)
        listed = agent.tools if choice.tools is None else choice.tools
        always = {tool.spec.name for tool in automatic} | (own.always if choice.tools is None else set())
        allowed = None if listed is None else (*listed, *sorted(always))
        return Belt(Registry((*own.tools, *knowledge.pattern_tools(agent), *automatic)), allowed)

    def _fitted(self, agent: Agent, choice: Choice, belt: Belt) -> Belt:
        """The belt as it is where the window has room for all of it; else some of its tools are shown late."""
        permitted = belt.registry.permitted(belt.allowed, read_only=agent.is_read_only)
        window, reserved = self._window(agent)
        count = self._models.count(self._models.chosen(agent, choice.model))
        if tools_tokens([tool.spec for tool in permitted], count) <= TOOLS_SHARE * (window - reserved):
            return belt
        late = {tool.spec.name: tool.occasion for tool in permitted if tool.occasion != "always"}
        seldom = [name for name, occasion in late.items() if occasion == "seldom"]
        if not seldom:
            return replace(belt, late=late)
        if belt.registry.get(MORE) is not None:  # a tool of the user's has that name
            return replace(belt, late={name: late[name] for name in late.keys() - {*seldom}})
        allowed = None if belt.allowed is None else (*belt.allowed, MORE)
        return Belt(Registry((*belt.registry.permitted(), more_tool(seldom))), allowed, late)

    def _memory_tools(self, agent: Agent, choice: Choice) -> tuple[Tool, ...]:
        """What every agent has, whatever tools it lists: it must be able to find what has left its context."""
        chosen = self._models.chosen(agent, choice.model)
        window, reserved = self._window(agent)
        compressor = self._models.compressor(agent, chosen)
        deadline_s = min(DEADLINE_S, self._settings.limits.tool_timeout_s / 2)
        sessions = Sessions(self._database)
        parts = RecallParts(
            memories=Memories(self._database),
            search=Search(self._database),
            sessions=sessions,
            rerank=None
            if compressor is None
            else Reranker(compressor, partial(self._charge, agent.name), sessions.is_there, deadline_s),
            count=self._models.count(chosen),
            recalled_budget_tokens=int(RECALLED_SHARE * (window - reserved)),
            kernel_budget_tokens=int(agent.memory.shares.kernel * (window - reserved)),
            # Half of what a turn's results may take, so that an answer leaves room for another one.
            answer_tokens=results_tokens(window - reserved) // 2,
            answer_bytes=min(MOST_BYTES, self._settings.tools.reference_bytes * 9 // 10),
            candidates=ranked_at_once((agent.compressor.max_context_tokens or window) - reserved),
            has_swap=agent.memory.has_swap,
        )
        return recall_tools(parts)

    def _charge(self, agent: str, caller: Caller, model: str, usage: Usage) -> None:
        """Enter what a tool's own call of a model cost."""
        spent = Charge(caller.workspace, caller.session_id, agent, model, usage, caller.turn_id)
        Ledger(self._database).charge(caller.lane, spent, now_ms=now_ms())


def _why_absent(name: str, agents: Agents) -> str:
    """Why there is no such agent; its turns end with that."""
    return agents.fault(name) or f"There is no agent {name!r} any more; put its file back into LOOM_AGENTS_DIR."
