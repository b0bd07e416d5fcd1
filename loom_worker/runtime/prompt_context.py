"""What is added to a user's message: the date, and the facts, patterns and skills chosen for it."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from loom_worker.core.errors import LoomError
from loom_worker.core.text import longest, one_line
from loom_worker.core.values.agents import Agent
from loom_worker.core.values.budgets import Payer, Reservation, Settlement
from loom_worker.core.values.chat import Reply
from loom_worker.core.values.facts import topic_words
from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.learned import LearnedLayer
from loom_worker.core.values.patterns import PatternMatch
from loom_worker.core.values.skills import Skill, SkillSet
from loom_worker.core.values.tools import Caller, Tool
from loom_worker.core.values.turns import Turn
from loom_worker.core.values.usage import Purpose
from loom_worker.llm.model import Model, OnBudget
from loom_worker.llm.rerank import Reranker
from loom_worker.memory.layers import Count
from loom_worker.memory.tier_tools import as_text, ranked
from loom_worker.patterns.live import LiveLibrary
from loom_worker.patterns.render import for_message
from loom_worker.patterns.rerank import is_close, rerank
from loom_worker.patterns.tools import pattern_tools
from loom_worker.skills.files import read_skill_file_tool
from loom_worker.skills.index import Skills
from loom_worker.skills.prompt import chosen, for_system_prompt
from loom_worker.skills.prompt import for_message as skills_for_message
from loom_worker.store.budgets import Budgets
from loom_worker.store.facts import Facts
from loom_worker.store.learned import AgentOf, LearnedLayers
from loom_worker.store.ledger import Charge, Ledger
from loom_worker.store.sessions import Sessions
from loom_worker.turn.agent_runtime import AgentRuntime, PromptContext
from loom_worker.turn.channel import hint
from loom_worker.turn.context import addition_tokens

log = logging.getLogger(__name__)

CANDIDATES = 3
"""Patterns considered for a question; the agent's max_patterns_per_turn of them are added to it."""
STANDING_SHARE = 0.10
"""Share of the input budget: what the system text may say of skills."""
CHARS_PER_TOKEN = 3
"""Characters in a token: prose and code have four by cl100k; texts in denser scripts are cut once more."""
MOST_PROBLEM_CHARS = 500
"""Characters of a complaint about a skill, in the log."""
MOST_FACTS, FACTS_PART = 5, 4
"""Facts beside a message, and of what may be added to it the fourth part that they may take."""
LEAST_CONFIDENCE = 0.5
"""Least confidence of facts beside a message; what was only hinted at is told to an agent that asks."""
ASKED_CHARS = 4_000
"""Characters of a message in which facts are looked for."""
RERANK_S = 10.0
"""For the model that settles close calls, its retries included."""


@dataclass(frozen=True, slots=True)
class RankingAccounts:
    """Sessions on whose behalf a model ranks; what that costs is entered into the ledger."""

    ledger: Ledger
    sessions: Sessions
    budgets: Budgets
    agent: Agent
    count: Count
    """The tokens of the model that ranks."""
    purpose: Purpose = "rerank"

    def is_there(self, lane: str) -> bool:
        return self.sessions.is_there(lane)

    def on_budget(self, model: Model, caller: Caller) -> OnBudget:
        return OnBudget(model, self.budgets, self._payer(caller), self.count)

    def charge(self, caller: Caller, reply: Reply, held: Sequence[Reservation]) -> None:
        names = (caller.workspace, caller.session_id, self.agent.name, reply.model)
        settlement = Settlement(self._payer(caller), reply.usage.amount(), tuple(held))
        spent = Charge(*names, reply.usage, caller.turn_id, kind=self.purpose, settlement=settlement)
        self.ledger.charge(caller.lane, spent, now_ms=now_ms())

    def _payer(self, caller: Caller) -> Payer:
        return Payer(caller.workspace, caller.lane, self.agent.name, self.agent.budget, caller.turn_id)


@dataclass(slots=True)
class Knowledge:
    """Patterns and skills of a process; any thread may ask."""

    library: LiveLibrary
    skills: Skills
    ledger: Ledger
    sessions: Sessions
    facts: Facts
    budgets: Budgets
    layers: LearnedLayers
    _told: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Workspace to what was last logged about its skills."""

    def pattern_tools(self, agent: Agent) -> tuple[Tool, ...]:
        """What an agent can look patterns up with, if its list of tools allows."""
        return pattern_tools(self.library) if agent.patterns_enabled else ()

    def skill_tools(self) -> tuple[Tool, ...]:
        """What an agent that has skills reads their files with, whatever it lists: their texts tell it to."""
        return (read_skill_file_tool(self.skills),)

    def skill_set(self, agent: Agent, workspace: str) -> SkillSet:
        """The agent's skills in a workspace as they are now; what is wrong with one is logged once."""
        if not agent.skills_enabled:
            return SkillSet()
        skill_set = self.skills.of(workspace)
        known = self._told.get(workspace, ())
        self._told[workspace] = (*skill_set.problems, *skill_set.warnings)
        for told, problems in (
            ("skill left out: %s", skill_set.problems),
            ("skill loads, but: %s", skill_set.warnings),
        ):
            for problem in (each for each in problems if each not in known):
                log.warning(told, one_line(problem, MOST_PROBLEM_CHARS))
        return skill_set

    def has_skills_anywhere(self, agent: Agent) -> bool:
        """True if the agent uses skills and there is one, in whatever workspace."""
        return agent.skills_enabled and self.skills.any()

    def standing(self, runtime: AgentRuntime) -> str:
        if not runtime.agent.skills_enabled:
            return ""
        skill_set, tools = runtime.skill_set, _names(runtime)
        most_tokens = int(STANDING_SHARE * runtime.input_budget_tokens)
        return _fitted(
            lambda most_chars: for_system_prompt(skill_set, most_chars=most_chars, tools=tools),
            most_tokens,
            runtime.count,
        )

    def learned(self, workspace: str, lane: str, agent: Agent, version: int | None) -> tuple[int, LearnedLayer | None]:
        return self.layers.for_session(AgentOf(workspace, agent.name), lane, agent.learned, version)

    def prompt_context(self, turn: Turn, runtime: AgentRuntime) -> PromptContext:
        """The date, the turn's channel, and the facts, skills and patterns that its message is about."""
        parts = [f"Today is {datetime.now(UTC):%Y-%m-%d}."]
        if turn.channel is not None:
            parts.append(hint(turn.channel))
        room = addition_tokens(runtime.input_budget_tokens) - sum(map(runtime.count, parts))
        if facts := self._facts(turn, runtime, room // FACTS_PART):
            parts.append(facts)
            room -= runtime.count(facts)
        called = _called(turn, runtime)
        if called:
            tools = _names(runtime)
            block = _fitted(
                lambda most_chars: skills_for_message(called, most_chars=most_chars, tools=tools), room, runtime.count
            )
            parts.append(block)
            room -= runtime.count(block)
        matches = []
        for match in self._matches(turn, runtime):
            text = for_message(match)
            if (needed := runtime.count(text)) <= room:
                parts.append(text)
                matches.append(match)
                room -= needed
        return PromptContext("\n\n".join(parts), tuple(map(_told, matches)), tuple(_how(*each) for each in called))

    def _facts(self, turn: Turn, runtime: AgentRuntime, room: int) -> str:
        """The facts that a message is about, where the agent's file asks for them; none if the database fails."""
        tiers = runtime.agent.tiers
        words = topic_words(turn.input[:ASKED_CHARS])
        if tiers is None or not tiers.injects_facts or not words:
            return ""
        try:
            known = self.facts.find(turn.lane, tiers.scope, words)
        except LoomError as error:
            log.warning("a message is sent without the facts that it is about: %s", error)
            return ""
        certain = [fact for fact in known if fact.confidence >= LEAST_CONFIDENCE]
        found = ranked(turn.input[:ASKED_CHARS], certain, most=MOST_FACTS)
        fitting = longest(len(found), lambda most: runtime.count(as_text(found[:most], turn.id)) <= room)
        return as_text(found[:fitting], turn.id)

    def version_of(self, pattern_id: str) -> str | None:
        pattern = self.library.by_id(pattern_id)
        return pattern.digest if pattern else None

    def close(self) -> None:
        """End the watch."""
        self.library.stop()

    def _matches(self, turn: Turn, runtime: AgentRuntime) -> Sequence[PatternMatch]:
        agent = runtime.agent
        if not agent.patterns_enabled or not agent.max_patterns_per_turn:
            return ()
        k = max(CANDIDATES, agent.max_patterns_per_turn)
        found = self.library.current().match(turn.input, k, kinds=runtime.kinds)
        if agent.reranks_patterns and runtime.compressor is not None and is_close(found):
            settled = self._reranked(turn, found, runtime, runtime.compressor)
            if settled is not found:  # else the model gave no verdict, and confidence decides as ever
                return settled[: agent.max_patterns_per_turn]
        good = [match for match in found if match.confidence >= agent.min_confidence]
        return good[: agent.max_patterns_per_turn]

    def _reranked(
        self, turn: Turn, found: tuple[PatternMatch, ...], runtime: AgentRuntime, compressor: Model
    ) -> tuple[PatternMatch, ...]:
        accounts = RankingAccounts(self.ledger, self.sessions, self.budgets, runtime.agent, runtime.count)
        reranker = Reranker(compressor, accounts, RERANK_S)
        caller = Caller(turn.lane, turn.session_id, turn.workspace, turn.id, call_id="", agent=turn.agent)
        return rerank(turn.input, found, reranker, caller)


def _called(turn: Turn, runtime: AgentRuntime) -> tuple[tuple[Skill, Literal["manual", "keyword"]], ...]:
    if not runtime.agent.skills_enabled:
        return ()
    return chosen(runtime.skill_set, turn.input, most=runtime.agent.max_skills_per_turn)


def _fitted(tell: Callable[[int], str], most_tokens: int, count: Count) -> str:
    """A text that says as much as its room allows."""
    most_chars = most_tokens * CHARS_PER_TOKEN
    text = tell(most_chars)
    needed = count(text) if text else 0
    return text if needed <= most_tokens else tell(int(0.9 * most_chars * most_tokens / needed))


def _names(runtime: AgentRuntime) -> frozenset[str]:
    return frozenset(spec.name for spec in runtime.specs)


def _told(match: PatternMatch) -> dict[str, object]:
    return {
        "id": match.pattern.id,
        "score": round(match.score, 4),
        "confidence": round(match.confidence, 4),
        "version": match.pattern.digest,
    }


def _how(skill: Skill, how: str) -> dict[str, object]:
    return {"name": skill.name, "how": how}
