"""Agents with everything in their hands: model, tools, data and patterns, each built when first needed."""

import importlib
import logging
import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache, partial

from sqlalchemy import make_url

from loom_worker.agents.load import Agents
from loom_worker.backends.sql import SqlBackend
from loom_worker.errors import Interrupted, LoomError, ProviderFailed
from loom_worker.llm import tokens
from loom_worker.llm.anthropic import Anthropic
from loom_worker.llm.model import Model
from loom_worker.llm.retry import Retrying
from loom_worker.llm.scripted import Scripted
from loom_worker.memory.layers import Count
from loom_worker.memory.recalled import RECALLED_SHARE
from loom_worker.patterns.library import load, packaged_root
from loom_worker.patterns.match import Matcher
from loom_worker.patterns.render import for_message, load_pattern_tool
from loom_worker.recall.rerank import DEADLINE_S, Reranker, ranked_at_once
from loom_worker.recall.tools import RecallParts, recall_tools
from loom_worker.settings import Settings
from loom_worker.store.database import Database
from loom_worker.store.ledger import Charge, Ledger
from loom_worker.store.memory import Memories
from loom_worker.store.search import Search
from loom_worker.store.sessions import Sessions
from loom_worker.tools.registry import Registry
from loom_worker.turn.loom import Kit
from loom_worker.turn.patience import Stopping
from loom_worker.values.agents import Agent
from loom_worker.values.chat import ReplyEvent, Request, ToolSpec, Usage
from loom_worker.values.ids import now_ms
from loom_worker.values.json import Json
from loom_worker.values.patterns import Pattern
from loom_worker.values.sessions import Choice
from loom_worker.values.tools import Caller, Tool

log = logging.getLogger(__name__)

CANDIDATES = 3
"""Patterns considered for a question; the agent's max_patterns_per_turn of them are put beside it."""


MOST_KITS = 256
"""Kits a process keeps: every choice of model, tools and database makes one more."""
AS_AGENT = Choice()

REMEMBERED_CHARS = 20_000
"""Longer texts are counted anew each time: the memory of counts stays under some 40 MB a model."""


class Patterns:
    """The pattern library and its index, built when first asked: scikit-learn takes a second to load."""

    def __init__(self, settings: Settings) -> None:
        self._root = settings.patterns_dir or packaged_root()
        self._lock = threading.Lock()
        self._matcher: Matcher | None = None

    def matcher(self) -> Matcher:
        """The index."""
        with self._lock:
            if self._matcher is None:
                library = load(self._root)
                for problem in library.problems:
                    log.warning("pattern left out: %s", problem)
                self._matcher = Matcher(library.patterns)
            return self._matcher

    def by_id(self, pattern_id: str) -> Pattern | None:
        """The pattern with this path-qualified id, or None."""
        return self.matcher().by_id(pattern_id)

    def ids(self) -> tuple[str, ...]:
        """The ids of all patterns."""
        return self.matcher().ids()


class Absent:
    """The model of an agent that is not there any more, or cannot work: each call says why."""

    def __init__(self, why: str) -> None:
        self.name = "none"
        self._why = why

    def reply(self, request: Request) -> Iterator[ReplyEvent]:
        """Refuse."""
        raise ProviderFailed(self._why)


class Kits:
    """All kits of a process."""

    def __init__(
        self, settings: Settings, agents: Agents, database: Database, *, stopping: Stopping | None = None
    ) -> None:
        self._settings = settings
        self._agents = agents
        self._database = database
        self._stopping = stopping or Stopping(settings.lanes.drain_s)
        self._patterns = Patterns(settings)
        self._lock = threading.RLock()
        self._kits: OrderedDict[tuple[str, Choice], Kit] = OrderedDict()
        self._counts: dict[str, Count] = {}
        self._backends: dict[str, SqlBackend] = {}

    def kit(self, name: str, choice: Choice = AS_AGENT) -> Kit:
        """The kit of an agent, with what a session chose instead of its own."""
        with self._lock:
            if (name, choice) not in self._kits:
                self._kits[name, choice] = self._build(name, choice)
                if len(self._kits) > MOST_KITS:
                    self._kits.popitem(last=False)
            self._kits.move_to_end((name, choice))
            return self._kits[name, choice]

    def tools(self, name: str) -> tuple[ToolSpec, ...]:
        """The tools of an agent, as the model sees them; no model and no index is built."""
        agent = self._agents.agents[name]
        own, automatic = self._tools(agent), self._memory_tools(agent, AS_AGENT)
        return Registry((*own, *automatic)).specs(_allowed(agent.tools, automatic))

    def match(self, question: str, agent: Agent) -> tuple[str, tuple[Json, ...]]:
        """The text that stands beside a question, and the patterns in it."""
        parts = [f"Today is {datetime.now(UTC):%Y-%m-%d}."]
        if not agent.patterns_enabled:
            return parts[0], ()
        found = self._patterns.matcher().match(question, k=max(CANDIDATES, agent.max_patterns_per_turn))
        good = [match for match in found if match.score >= agent.min_confidence][: agent.max_patterns_per_turn]
        text = "\n\n".join(parts + [for_message(match) for match in good])
        return text, tuple({"id": match.pattern.id, "score": round(match.score, 4)} for match in good)

    def warm(self) -> None:
        """Build what the first turn would otherwise wait for."""
        kit = self.kit("default")
        self.match("warm up", kit.agent)
        kit.count("warm up")
        if self._settings.llm.provider != "scripted":
            importlib.import_module("anthropic")

    def close(self) -> None:
        """Close the connections of all backends."""
        with self._lock:
            for backend in self._backends.values():
                backend.close()

    def _build(self, name: str, choice: Choice) -> Kit:
        agent = self._agents.agents.get(name)
        if agent is None:
            why = f"There is no agent {name!r} any more; put its file back into LOOM_AGENTS_DIR."
            return self._kit(Agent(name, has_backend=False), choice, (), Absent(why))
        if choice.backend is not None:
            agent = replace(agent, backend_url=self._switched(agent, choice.backend))
        try:
            return self._kit(agent, choice, self._tools(agent), None)
        except LoomError as error:  # raised here it would stop the lanes of all its sessions, turn after turn
            log.error("agent %s cannot work: %s", name, error)
            broken = Absent(f"The agent {name!r} cannot work: {error}")
            return self._kit(agent, choice, (), broken)

    def _kit(self, agent: Agent, choice: Choice, own: tuple[Tool, ...], absent: Absent | None) -> Kit:
        chosen = choice.model or agent.model or self._settings.llm.model
        window, reserved = self._window(agent)
        automatic = () if absent else self._memory_tools(agent, choice)
        registry = Registry((*own, *automatic))
        allowed = _allowed(agent.tools if choice.tools is None else choice.tools, automatic)
        return Kit(
            agent=agent,
            model=absent or self._model(agent.provider, chosen),
            count=self._count(chosen),
            registry=registry,
            specs=registry.specs(allowed),
            allowed=allowed,
            schema=self._schema(agent),
            input_budget_tokens=window - reserved,
            max_tokens=min(agent.max_tokens or 8192, reserved),
            typical=tokens.typical(chosen),
            compressor=None if absent else self._compressor(agent, chosen),
            compressor_budget_tokens=(agent.compressor.max_context_tokens or window) - reserved,
        )

    def window(self, name: str) -> tuple[int, int]:
        """The window of an agent's model, and what of it is reserved for its reply, in tokens."""
        return self._window(self._agents.agents.get(name) or Agent(name))

    def _window(self, agent: Agent) -> tuple[int, int]:
        """An agent with a window of its own reserves a tenth of that, or what its replies may take."""
        llm = self._settings.llm
        if agent.max_context_tokens is None:
            window, usual = llm.max_context_tokens, llm.reserved_output_tokens
        else:
            window = agent.max_context_tokens
            usual = max(window // 10, agent.max_tokens or 0)
        return window, min(agent.reserved_output_tokens or usual, window // 2)

    def _memory_tools(self, agent: Agent, choice: Choice) -> tuple[Tool, ...]:
        """What every agent has, whatever tools it lists: it must be able to find what has left its context."""
        chosen = choice.model or agent.model or self._settings.llm.model
        window, reserved = self._window(agent)
        compressor = self._compressor(agent, chosen)
        deadline_s = min(DEADLINE_S, self._settings.limits.tool_timeout_s / 2)
        parts = RecallParts(
            memories=Memories(self._database),
            search=Search(self._database),
            sessions=Sessions(self._database),
            rerank=None if compressor is None else Reranker(compressor, partial(self._charge, agent.name), deadline_s),
            count=self._count(chosen),
            recalled_budget_tokens=int(RECALLED_SHARE * (window - reserved)),
            kernel_budget_tokens=int(agent.memory.shares.kernel * (window - reserved)),
            candidates=ranked_at_once((agent.compressor.max_context_tokens or window) - reserved),
            has_swap=agent.memory.has_swap,
        )
        return recall_tools(parts)

    def _charge(self, agent: str, caller: Caller, model: str, usage: Usage) -> None:
        """Enter what a tool's own call of a model cost."""
        spent = Charge(caller.workspace, caller.session_id, agent, model, usage, caller.turn_id)
        Ledger(self._database).charge(caller.lane, spent, now_ms=now_ms())

    def _compressor(self, agent: Agent, chosen: str) -> Model | None:
        """The scripted model understands no conversation, so there it writes no summary of one."""
        provider = agent.compressor.provider or agent.provider or self._settings.llm.provider
        return None if provider == "scripted" else self._model(provider, agent.compressor.model or chosen)

    def _count(self, model: str) -> Count:
        if model not in self._counts:
            self._counts[model] = _remembering(partial(tokens.count, model=model))
        return self._counts[model]

    def _model(self, provider: str | None, chosen: str) -> Model:
        llm = self._settings.llm
        if (provider or llm.provider) == "scripted":
            return Scripted(self._count(chosen), model=chosen, is_stopping=lambda: self._stopping.is_due)
        adapter = Anthropic(
            model=chosen,
            api_key=llm.api_key,
            base_url=llm.base_url,
            call_timeout_s=llm.call_timeout_s,
            is_stopping=lambda: self._stopping.is_due,
        )
        return Retrying(adapter, pause=self._pause, chance=random.random, clock=time.monotonic)

    def _pause(self, wait_s: float, is_given_up: Callable[[], bool]) -> None:
        until_s = time.monotonic() + wait_s
        while (left_s := until_s - time.monotonic()) > 0:
            if self._stopping.is_asked or is_given_up():
                raise Interrupted("The worker stops, or nobody wants the reply any more.")
            time.sleep(min(left_s, 0.1))

    def _tools(self, agent: Agent) -> tuple[Tool, ...]:
        tools: tuple[Tool, ...] = ()
        if agent.has_backend:
            tools += self._backend(agent).tools()
        if agent.patterns_enabled:
            tools += (load_pattern_tool(self._patterns),)
        return tools

    def _schema(self, agent: Agent) -> str:
        if not agent.has_backend:
            return ""
        try:
            return self._backend(agent).describe()
        except LoomError as error:
            return f"(its schema cannot be read now: {error})"

    def _switched(self, agent: Agent, database: str) -> str:
        """The URL of another database behind the same server, or of another file."""
        url = make_url(agent.backend_url or self._settings.backend_url)
        return url.set(database=database).render_as_string(hide_password=False)

    def _backend(self, agent: Agent) -> SqlBackend:
        url = agent.backend_url or self._settings.backend_url
        with self._lock:
            if url not in self._backends:
                self._backends[url] = SqlBackend(url, timeout_s=max(1.0, self._settings.limits.tool_timeout_s - 1))
            return self._backends[url]


def _allowed(names: tuple[str, ...] | None, automatic: tuple[Tool, ...]) -> tuple[str, ...] | None:
    return None if names is None else (*names, *(tool.spec.name for tool in automatic))


def _remembering(count: Count) -> Count:
    """Count a text once: system text, tools and earlier messages come again with every call."""
    remembered = lru_cache(maxsize=2048)(count)
    return lambda text: remembered(text) if len(text) <= REMEMBERED_CHARS else count(text)
