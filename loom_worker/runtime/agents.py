"""Agents with everything in their hands: model, tools, data and patterns, each built when first needed."""

import logging
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from loom_worker.agents.known import AgentSource
from loom_worker.agents.load import Agents
from loom_worker.core.errors import BadFile, LoomError
from loom_worker.core.settings import Settings
from loom_worker.core.values.agents import Agent, ModelChoice
from loom_worker.core.values.chat import ToolSpec, ToolUse
from loom_worker.core.values.guardrails import Stage
from loom_worker.core.values.json import Json
from loom_worker.core.values.sessions import Choice, Session
from loom_worker.core.values.tools import MAX_SHOWN, Occasion, Tool
from loom_worker.core.values.turns import Claim
from loom_worker.core.values.workspaces import ALL_NAMES, NameRules
from loom_worker.judge.evaluate import JudgeModel
from loom_worker.judge.injection import CHECK_S, InjectionCheck
from loom_worker.judge.llm import VERDICT_TOKENS
from loom_worker.llm import tokens
from loom_worker.llm.catalog import known
from loom_worker.llm.model import TOOLS_TOKENS, Model
from loom_worker.llm.rerank import Reranker
from loom_worker.memory.layers import tools_tokens
from loom_worker.memory.pressure import l1_room
from loom_worker.memory.recall_facts import KEEP_FACTS
from loom_worker.memory.recall_rerank import DEADLINE_S, ranked_at_once
from loom_worker.memory.recall_tools import RecallParts, recall_tools
from loom_worker.memory.recalled import MOST_BYTES, RECALLED_SHARE
from loom_worker.memory.results import Sizes, results_tokens
from loom_worker.memory.search_tool import SemanticParts, search_tool, semantic_tool
from loom_worker.memory.summarize import CompressionRules
from loom_worker.memory.tier_tools import TierParts, tier_tools
from loom_worker.patterns.tools import pattern_tools
from loom_worker.runtime.embedders import Embedders, model_of
from loom_worker.runtime.models import Absent, Models
from loom_worker.runtime.prompt_context import Knowledge, RankingAccounts
from loom_worker.runtime.tool_sets import ToolProvider
from loom_worker.runtime.workspace_rules import RulesCache
from loom_worker.skills.files import read_skill_file_tool
from loom_worker.store.agent_versions import AgentVersions
from loom_worker.store.budgets import Budgets
from loom_worker.store.database import Database
from loom_worker.store.dated_summaries import DatedSummaries
from loom_worker.store.facts import Facts
from loom_worker.store.ledger import Ledger
from loom_worker.store.memory import Memories
from loom_worker.store.search import Search
from loom_worker.store.sessions import Sessions
from loom_worker.tools.agent_tools import MessageParts, Peers, agent_tools
from loom_worker.tools.registry import MORE, Registry, more_tool
from loom_worker.turn import context
from loom_worker.turn.agent_runtime import AgentRuntime

log = logging.getLogger(__name__)

MOST_RUNTIMES = 256
"""Kits a process keeps: every choice of model, tools and database makes one more."""
TOOLS_SHARE = 0.10
"""Share of the input budget (0-1): tools that take more are not all shown from the start. Where they take less, the
cached prefix is worth more than their room."""
AS_AGENT = Choice()
LOCAL_JUDGE_S = 300.0
"""Least time of a judge whose model is on the user's own machine."""


@dataclass(frozen=True, slots=True)
class ToolSet:
    """The tools of an agent, and the names of those it may call; None: all."""

    registry: Registry
    allowed: tuple[str, ...] | None
    late: Mapping[str, Occasion] = field(default_factory=dict)
    """Those that are shown only once there is an occasion."""


NOTHING = ToolSet(Registry(()), ())


class AgentRegistry:
    """All agent runtimes of a process."""

    def __init__(
        self,
        settings: Settings,
        agents: AgentSource,
        database: Database,
        *,
        models: Models,
        tool_provider: ToolProvider,
        knowledge: Knowledge,
        messages: MessageParts,
        embedders: Embedders,
    ) -> None:
        self.embedders = embedders
        """The embedding models of this process."""
        self._settings = settings
        self._agents = agents
        self._database = database
        self._models = models
        self._knowledge = knowledge
        self._messages = messages
        self._lock = threading.RLock()
        self._tool_provider = tool_provider
        self._rules = RulesCache(database)
        self._versions = AgentVersions(database)
        self._runtimes: OrderedDict[tuple[str, Choice, str], AgentRuntime] = OrderedDict()
        self._told: dict[str, Mapping[str, None]] = {}
        """What was logged of each agent's tools: it is told again only if it was mended in between."""

    def runtime(self, name: str, choice: Choice = AS_AGENT, workspace: str | None = None) -> AgentRuntime:
        """The agent runtime of an agent, with what a session chose instead of its own.

        Args:
            workspace: whose rules hold and whose skills it has; None: of none, with the tool that reads skills if
                there are any at all.
        """
        version, choice = choice.version, replace(choice.under(self._rules.of(workspace)), version=None)
        try:
            agent = self._agents.kept(name, version)
            why = "" if agent else _why_absent(name, self._agents.current(name))
        except BadFile as error:
            agent, why = None, f"The agent {name!r} cannot work: {error}."
        agent = agent or Agent(name, version=version or "1", backend=None)
        if workspace is None:
            return self._kept(agent, choice, why, has_skills=self._knowledge.has_skills_anywhere(agent))
        skill_set = self._knowledge.skill_set(agent, workspace)
        # One that cannot be read now counts too: its text may be in the message of a turn that continues.
        runtime = self._kept(agent, choice, why, has_skills=bool(skill_set.skills or skill_set.problems))
        return replace(runtime, skill_set=skill_set) if skill_set.skills else runtime

    def _kept(self, agent: Agent, choice: Choice, why: str, *, has_skills: bool) -> AgentRuntime:
        """The agent runtime as it was built before, as long as the agent and its tools are the same."""
        made_of = why or f"{self._tool_provider.stamp(agent)} {has_skills} {self._peers(agent)}"
        key = (f"{agent.name}@{agent.version}", choice, made_of)
        with self._lock:
            runtime = self._runtimes.get(key)
        # Built outside of the lock: an agent whose servers are slow keeps no other waiting.
        if runtime is None or (runtime.agent is not agent and not why):
            runtime = self._build(agent, choice, why, has_skills=has_skills)
        with self._lock:
            held = self._runtimes.get(key)
            runtime = held if held is not None and held.agent is runtime.agent else runtime
            self._runtimes[key] = runtime
            self._runtimes.move_to_end(key)
            if len(self._runtimes) > MOST_RUNTIMES:
                self._runtimes.popitem(last=False)
            return runtime

    def keeping(self, claim: Claim) -> Claim:
        """Agents of workflows, and those whose file is gone, have no versions to keep."""
        name = claim.turn.agent
        if claim.choice.version is not None or ":" in name or self._settings.agent_pin == "none":
            return claim
        if name not in self._agents.current(name).agents:
            return claim
        version = self._versions.keep(name, claim.turn.lane)
        return replace(claim, choice=replace(claim.choice, version=version))

    def tools(self, name: str, version: str | None = None, workspace: str | None = None) -> tuple[Tool, ...]:
        """The tools of an agent, None: whatever the workspace; no model and no index is built."""
        agent = self._agents.kept(name, version) or Agent(name, backend=None)
        skill_set = None if workspace is None else self._knowledge.skill_set(agent, workspace)
        has_skills = (
            bool(skill_set.skills or skill_set.problems) if skill_set else self._knowledge.has_skills_anywhere(agent)
        )
        tool_set = self._tool_set(agent, AS_AGENT.under(self._rules.of(workspace)), has_skills=has_skills)
        return tool_set.registry.permitted(tool_set.allowed, read_only=agent.is_read_only)

    @property
    def tool_provider(self) -> ToolProvider:
        """Where the tools of agents come from."""
        return self._tool_provider

    def own(self, agent: Agent) -> tuple[Tool, ...]:
        """What Loom itself gives agents, also what needs a skill to be there; nothing is connected."""
        known = self._knowledge
        patterns = pattern_tools(known.library)
        common = (*self._tool_provider.common, *self._tool_provider.standing)
        return (*self._memory_tools(agent, AS_AGENT), *common, *patterns, read_skill_file_tool(known.skills))

    def kinds(self, name: str) -> frozenset[str]:
        return self._tool_provider.kinds(self._agent(name))

    def prepared(self, name: str, use: ToolUse, version: str | None = None) -> tuple[Json, str | None]:
        prepared = self.runtime(name, Choice(version=version)).prepared(use)
        return prepared.arguments, prepared.error

    def warm(self) -> None:
        """Build what the first turn would otherwise wait for."""
        self._knowledge.library.warm()
        runtime = self.runtime("default")
        runtime.count("warm up")
        self._models.warm()

    def close(self) -> None:
        """Close the connections of all backends."""
        self._tool_provider.close()

    def _build(self, agent: Agent, choice: Choice, why: str, *, has_skills: bool) -> AgentRuntime:
        if why:
            return self._runtime(agent, choice, NOTHING, Absent(why))
        try:
            tool_set = self._tool_set(agent, choice, has_skills=has_skills)
            return self._runtime(agent, choice, self._fitted(agent, choice, tool_set), None)
        except LoomError as error:  # raised here it would stop the lanes of all its sessions, turn after turn
            log.error("agent %s cannot work: %s", agent.name, error)
            broken = Absent(f"The agent {agent.name!r} cannot work: {error}")
            return self._runtime(agent, choice, NOTHING, broken)

    def _runtime(self, agent: Agent, choice: Choice, tool_set: ToolSet, absent: Absent | None) -> AgentRuntime:
        chosen = self._models.chosen(agent, choice)
        if agent.judges and self._models.judging(agent, choice).is_local:
            agent = replace(agent, judges=agent.judges.patient(LOCAL_JUDGE_S))
        window, reserved = self._window(agent, chosen)
        return AgentRuntime(
            agent=agent,
            llm=chosen,
            model=absent or self._models.answering(agent, chosen),
            sizes=Sizes(self._models.count(chosen.name)),
            registry=tool_set.registry,
            specs=_told(tool_set.registry.specs(tool_set.allowed, read_only=agent.is_read_only), chosen),
            allowed=tool_set.allowed,
            kinds=frozenset() if absent else self._tool_provider.kinds(agent),
            sees=frozenset() if absent or agent.remote else self._models.sees(chosen),
            schema="" if absent else self._tool_provider.schema(agent, choice.backend),
            input_budget_tokens=window - reserved,
            l1=l1_room(
                window - reserved,
                policy=agent.memory,
                most_tokens=self._settings.llm.l1_tokens,
                typical=tokens.typical(chosen.name),
            ),
            max_tokens=min((agent.max_tokens or 8192) + (chosen.thinking.tokens if chosen.thinking else 0), reserved),
            typical=tokens.typical(chosen.name),
            frame=tokens.frame(chosen.name),
            compressor=None if absent else self._models.compressor(agent, choice),
            compressor_budget_tokens=(agent.compressor.max_context_tokens or window) - reserved,
            judge=None if absent or agent.judges is None else self._judge(agent, choice),
            late=tool_set.late,
            checks={} if absent else dict(self._checks(agent)),
        )

    def _checks(self, agent: Agent) -> Iterator[tuple[Stage, InjectionCheck]]:
        for stage, named in agent.guardrails.models.items():
            model = self._models.model(agent.beside(ModelChoice(model=named), self._settings.llm.usual))
            accounts = replace(self._accounts(agent, Sessions(self._database), model), purpose="guard")
            yield stage, InjectionCheck(stage, Reranker(model, accounts, CHECK_S))

    def _judge(self, agent: Agent, choice: Choice) -> JudgeModel | None:
        model = self._models.judge(agent, choice)
        if model is None:
            return None
        window, reserved = self._window(agent, self._models.chosen(agent, choice))
        room = (agent.judge_model.max_context_tokens or window) - max(reserved, VERDICT_TOKENS) - TOOLS_TOKENS
        return JudgeModel(model, self._models.count(model.name), max(room, 0))

    def window(self, name: str) -> tuple[int, int]:
        agent = self._agent(name)
        return self._window(agent, self._models.chosen(agent, AS_AGENT))

    def compression(self, session: Session) -> CompressionRules:
        runtime = self.runtime(session.agent, session.choice, session.workspace)
        policy = runtime.agent.memory
        ratio = context.over_bound(runtime, session.token_correction)
        return CompressionRules(
            policy=policy,
            model=runtime.compressor,
            agent_budget=runtime.agent.budget,
            tiers=runtime.agent.tiers,
            is_thrifty=bool(runtime.llm.is_local),
            count=runtime.count,
            l1=context.room_of_l1(runtime, rom=session.rom or "", kernel=context.kernel_of(session), ratio=ratio),
            l2_tokens=min(policy.max_l2_tokens, int(policy.shares.l2 * runtime.input_budget_tokens)),
            budget_tokens=int(runtime.compressor_budget_tokens / context.scale(ratio)),
        )

    def _peers(self, agent: Agent) -> Peers:
        """The agents that it may call, and whether others may call it."""
        agents = self._agents.current(agent.name).agents
        called = {name: found.description if (found := agents.get(name)) else "" for name in agent.may_call}
        return Peers(called, any(agent.name in other.may_call for other in agents.values()))

    def _agent(self, name: str) -> Agent:
        """The agent as its file is now; one that is gone has nothing of its own."""
        return self._agents.current(name).agents.get(name) or Agent(name, backend=None)

    def _window(self, agent: Agent, chosen: ModelChoice) -> tuple[int, int]:
        """The window, and its reserve: a tenth where it is not the setting's, or what replies may take.

        No window is larger than the model is known to have.
        """
        llm, facts = self._settings.llm, known(chosen.name)
        window = agent.max_context_tokens or llm.max_context_tokens
        window = min(window, (facts and facts.context_tokens) or window)
        is_usual = window == llm.max_context_tokens and agent.max_context_tokens is None
        usual = llm.reserved_output_tokens if is_usual else max(window // 10, agent.max_tokens or 0)
        return window, min(agent.reserved_output_tokens or usual, window // 2)

    def _tool_set(self, agent: Agent, choice: Choice, *, has_skills: bool) -> ToolSet:
        own = self._tool_provider.own(agent, choice.backend)
        knowledge = self._knowledge
        readers = knowledge.skill_tools() if has_skills else ()
        talking = agent_tools(self._peers(agent), self._messages)
        listed = agent.tools if choice.tools is None else choice.tools
        is_bare = listed == () and (choice.tools is not None or not (agent.custom or agent.allows_mcp))
        standing = (*self._memory_tools(agent, choice), *self._tool_provider.standing, *readers)
        automatic = talking if is_bare else (*standing, *talking)
        always = {tool.spec.name for tool in automatic} | (own.always if choice.tools is None else set())
        allowed = None if listed is None else (*listed, *sorted(always))
        registry = Registry((*automatic, *(() if is_bare else (*own.tools, *knowledge.pattern_tools(agent)))))
        problems = dict.fromkeys((*own.problems, *registry.problems, *registry.changes))
        for problem in (each for each in problems if each not in self._told.get(agent.name, ())):
            log.warning("agent %s: %s", agent.name, problem)
        self._told[agent.name] = problems
        if choice.permitted != ALL_NAMES:
            allowed = tuple(_permitted(choice.permitted, registry.permitted(allowed), standing=automatic))
        return ToolSet(registry, allowed)

    def _fitted(self, agent: Agent, choice: Choice, tool_set: ToolSet) -> ToolSet:
        """The belt as it is where the window has room for all of it; else some of its tools are shown late."""
        permitted = tool_set.registry.permitted(tool_set.allowed, read_only=agent.is_read_only)
        chosen = self._models.chosen(agent, choice)
        window, reserved = self._window(agent, chosen)
        count = self._models.count(chosen.name)
        specs = tool_set.registry.specs(tool_set.allowed, read_only=agent.is_read_only)
        occasions = {tool.spec.name: tool.occasion for tool in permitted}
        many = {name: occasion for name, occasion in occasions.items() if occasion == "many"}
        late: dict[str, Occasion] = {**many} if len(many) > MAX_SHOWN else {}
        shown = [spec for spec in specs if spec.name not in late]
        most_tokens = TOOLS_SHARE * (window - reserved)
        if tools_tokens(shown, count) > most_tokens:
            late = late | {name: when for name, when in occasions.items() if when not in ("always", "many")}
            least = [spec for spec in specs if spec.name not in late]
            if tools_tokens(least, count) > most_tokens and _has_work_for_none(agent, choice, occasions):
                return replace(tool_set, late={**late, KEEP_FACTS: "earlier"})
        seldom = [spec for spec in specs if late.get(spec.name) in ("seldom", "many")]
        if not seldom:
            return replace(tool_set, late=late)
        if tool_set.registry.get(MORE) is not None:  # a tool of the user's has that name
            names = {spec.name for spec in seldom} - many.keys()
            return replace(tool_set, late={name: late[name] for name in late.keys() - names})
        allowed = None if tool_set.allowed is None else (*tool_set.allowed, MORE)
        return ToolSet(Registry((*tool_set.registry.permitted(), more_tool(seldom))), allowed, late)

    def _memory_tools(self, agent: Agent, choice: Choice) -> tuple[Tool, ...]:
        """What every agent has, whatever tools it lists: it must be able to find what has left its context."""
        chosen = self._models.chosen(agent, choice)
        window, reserved = self._window(agent, chosen)
        compressor = self._models.compressor(agent, choice)
        deadline_s = min(DEADLINE_S, self._settings.limits.tool_timeout_s / 2)
        sessions = Sessions(self._database)
        semantic = self.embedders.semantic(agent)
        parts = RecallParts(
            memories=Memories(self._database),
            search=Search(self._database),
            sessions=sessions,
            rerank=None
            if compressor is None
            else Reranker(compressor, self._accounts(agent, sessions, compressor), deadline_s),
            count=self._models.count(chosen.name),
            recalled_budget_tokens=int(RECALLED_SHARE * (window - reserved)),
            kernel_budget_tokens=int(agent.memory.shares.kernel * (window - reserved)),
            # Half of what a turn's results may take, so that an answer leaves room for another one.
            answer_tokens=results_tokens(window - reserved) // 2,
            answer_bytes=min(MOST_BYTES, self._settings.tools.reference_bytes * 9 // 10),
            candidates=ranked_at_once((agent.compressor.max_context_tokens or window) - reserved),
            semantic=semantic if model_of(agent) else None,
            has_swap=agent.memory.has_swap,
        )
        if agent.tiers is None or semantic is None:
            return recall_tools(parts)
        beyond = TierParts(agent.tiers, DatedSummaries(self._database), Facts(self._database), parts.room)
        semantic_parts = SemanticParts(semantic, parts.room)
        return (
            *recall_tools(parts),
            search_tool(parts.search, agent.tiers, parts.room),
            *tier_tools(beyond),
            semantic_tool(semantic_parts),
        )

    def _accounts(self, agent: Agent, sessions: Sessions, compressor: Model) -> RankingAccounts:
        ledger, budgets = Ledger(self._database), Budgets(self._database)
        return RankingAccounts(ledger, sessions, budgets, agent, self._models.count(compressor.name))


def _has_work_for_none(agent: Agent, choice: Choice, occasions: Mapping[str, Occasion]) -> bool:
    """Whether no tool is of use before something has left the context: then the provider's text about tools goes, too.

    Tools that the agent's file lists or speaks of are wanted, and a stage of a workflow shares memory with others.
    """
    has_own = any(when == "always" for name, when in occasions.items() if name != KEEP_FACTS)
    is_told = agent.tools is not None or choice.tools is not None or ":" in agent.name
    return not has_own and not is_told and not any(name in agent.system_prompt for name in occasions)


def _permitted(names: NameRules, tools: Sequence[Tool], *, standing: Sequence[Tool]) -> Iterator[str]:
    """The tools that a workspace permits. Loom's own, such as those of memory, only a denial takes away."""
    own = {tool.spec.name for tool in standing}
    for name in (tool.spec.name for tool in tools):
        if not names.denies(name) and (name in own or names.permit(name)):
            yield name


def _why_absent(name: str, agents: Agents) -> str:
    """Why there is no such agent; its turns end with that."""
    return agents.fault(name) or f"There is no agent {name!r} any more; put its file back into LOOM_AGENTS_DIR."


def _told(specs: tuple[ToolSpec, ...], chosen: ModelChoice) -> tuple[ToolSpec, ...]:
    """The tools as the model is told of them: briefly where it reads slowly."""
    return tuple(spec.brief() for spec in specs) if chosen.is_local else specs
