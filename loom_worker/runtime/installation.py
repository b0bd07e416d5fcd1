"""What cannot work in an installation: one list for `loom up`, `loom doctor` and the log of every worker.

Sources of tools are looked at side by side and for a bounded time, for a server may be silent and a user's file may do
anything; ``agents.check`` then judges what was found, purely.
"""

import contextlib
import logging
import shutil
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Protocol

from loom_worker.agents import check
from loom_worker.agents.load import Agents, files_of
from loom_worker.backends.mcp import servers
from loom_worker.backends.rest.backend import RestBackend
from loom_worker.backends.sql import SqlBackend
from loom_worker.core.errors import LoomError, Transient
from loom_worker.core.settings import Settings
from loom_worker.core.values.agents import Agent, McpServer, Scope
from loom_worker.core.values.problems import Problem, in_order
from loom_worker.core.values.tools import Tool
from loom_worker.demo.workflows import shipped_workflows
from loom_worker.judge.python_judges import judging_function
from loom_worker.llm.bedrock import PACKAGES
from loom_worker.llm.embeddings_local import StaticModel
from loom_worker.runtime.agents import AgentRegistry
from loom_worker.runtime.embedders import adapter, model_of
from loom_worker.runtime.tool_sets import Data, servers_of
from loom_worker.tools import custom
from loom_worker.tools.registry import Registry
from loom_worker.workflows import load as workflow_files
from loom_worker.workflows.load import faults

LOOK_S = 15.0
"""For all sources together; those that are not done by then are reported as silent."""
EMBEDDING_S = 5.0
"""For the vector of one word; a model that must be loaded first may take longer, which is but a warning."""
LOOKERS = 16
"""Sources that are looked at at the same time."""
BACKEND_URL = "LOOM_BACKEND_URL"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Found:
    """What one source of an agent's tools gave."""

    tools: tuple[Tool, ...] = ()
    problems: tuple[Problem, ...] = ()
    unread: tuple[str, ...] = ()
    """As in check.Inventory."""


class Look(Protocol):
    """A look at one source of an agent's tools."""

    @property
    def agent(self) -> Agent:
        """Whose source it is."""

    def found(self) -> Found:
        """Look; may take its time."""

    def failed(self, why: str) -> Found:
        """What to tell if it took too long, or ended in a way that nobody foresaw."""


@dataclass(frozen=True, slots=True)
class Inspection:
    """Looks at an installation with the parts of a process; what it connects to stays open for them."""

    settings: Settings
    registry: AgentRegistry
    calls_model: bool
    """True: this process has the keys of providers, so it can tell that one is missing."""
    reaches_out: bool
    """True: databases are connected to and servers started; False: only what this machine knows is looked at."""
    look_s: float = LOOK_S

    def problems(self, agents: Agents) -> tuple[Problem, ...]:
        """Everything, each once, what cannot work first."""
        found = self._look_at(agents.agents.values())
        of_agents = (problem for agent in agents.agents.values() for problem in self._judged(agent, found[agent.name]))
        workflows = workflow_files.load(workflow_files.used_folder(self.settings.workflows_dir, shipped_workflows()))
        of_workflows = (problem for each in workflows.workflows.values() for problem in faults(each, agents))
        together = (*workflows.problems, *of_workflows, *_of_calls(agents, workflows))
        return in_order((*self.settings.problems, *self._no_files(), *agents.problems, *of_agents, *together))

    def _no_files(self) -> Iterator[Problem]:
        folder = self.settings.agents_dir
        if folder is not None and not files_of(folder):
            text = f"no file of {folder} ends in .yaml or .yml, so only the agent in the package is there"
            yield Problem(text, "put an agent's file there", field="LOOM_AGENTS_DIR", is_warning=True)

    def _judged(self, agent: Agent, sources: Sequence[Found]) -> Iterator[Problem]:
        for source in sources:
            yield from source.problems
        tools = (*self.registry.own(agent), *(tool for source in sources for tool in source.tools))
        registry = Registry({tool.spec.name: tool for tool in tools}.values())  # databases have theirs each
        yield from (agent.problem(agent.at("tools"), text) for text in registry.problems)
        yield from (agent.problem(agent.at("tools"), text, is_warning=True) for text in registry.changes)
        by_name = {tool.spec.name: tool.is_read_only for tool in tools}
        unread = tuple(prefix for source in sources for prefix in source.unread)
        yield from check.tools(agent, check.Inventory(by_name, unread))
        yield from check.placeholders(agent)
        yield from check.remote(agent, self.settings.secrets)
        if self.calls_model:
            has_aws = all(find_spec(name) for name in PACKAGES)
            yield from check.models(agent, check.Providers(self.settings, has_aws=has_aws))

    def _look_at(self, agents: Iterable[Agent]) -> dict[str, list[Found]]:
        looks = [look for agent in agents for look in self._looks(agent)]
        found: dict[str, list[Found]] = {look.agent.name: [] for look in looks}
        for look, done in zip(looks, side_by_side(looks, self.look_s), strict=True):
            found[look.agent.name].append(done)
        return found

    def _looks(self, agent: Agent) -> Iterator[Look]:
        for database in (None, *agent.databases):
            yield _DataLook(self, agent, database)
        for server in servers_of(agent):
            yield _ServerLook(self, agent, server)
        yield _PythonLook(self, agent)
        if self.calls_model and (model := model_of(agent)):
            yield _EmbedderLook(self, agent, model)


@dataclass(frozen=True, slots=True)
class _DataLook:
    inspection: Inspection
    agent: Agent
    database: str | None
    """None: its own; else one that a session may switch to."""

    def found(self) -> Found:
        settings, agent = self.inspection.settings, self.agent
        backend = agent.backend
        if backend is None:
            return Found()
        tools: tuple[Tool, ...] = ()
        try:
            data = self.inspection.registry.tool_provider.data(agent, self.database)
            if data is None or (self.database is None and _is_yet_to_be_made(agent, settings)):
                return Found(data.tools() if data else ())
            tools = data.tools()
            problems = tuple(self._tried(data))
        except LoomError as error:
            # What a database offers is known without it; the operations of an HTTP service are not.
            unread = () if tools or backend.kind == "sql" else ("",)
            return Found(tools, (self._problem(str(error)),), unread)
        return Found(tools, problems)

    def failed(self, why: str) -> Found:
        is_sql = self.agent.backend is not None and self.agent.backend.kind == "sql"
        return Found(problems=(self._problem(f"the agent's data {why}"),), unread=() if is_sql else ("",))

    def _tried(self, data: Data) -> Iterator[Problem]:
        """Open it; what of its scope it does not have."""
        data.check()
        yield from map(self._problem, data.problems if isinstance(data, RestBackend) else ())
        if not self.inspection.reaches_out:
            return
        data.describe()
        if isinstance(data, SqlBackend) and self.database is None:
            yield from self._strangers(data.unknown_names())

    def _strangers(self, strange: Sequence[str]) -> Iterator[Problem]:
        """What the scope names and the database does not have, each at its entry."""
        scope = self.agent.backend.scope if self.agent.backend else Scope()
        lists = {"schema": scope.schemas, "table": scope.tables, "column": scope.columns}
        named = ((kind, place, name) for kind, names in lists.items() for place, name in enumerate(names or ()))
        for kind, place, name in named:
            if name in strange:
                yield _of_data(self.agent, f"scope.{kind}s[{place}]", f"the database has no {kind} {name!r}")

    def _problem(self, text: str) -> Problem:
        agent, reason = self.agent, text.removeprefix(f"{BACKEND_URL}: ")
        backend = agent.backend
        if self.database is not None and backend is not None:
            return _of_data(agent, f"scope.databases[{backend.databases.index(self.database)}]", reason)
        if backend is not None and backend.kind == "documents":
            return _of_data(agent, "path", reason)
        if backend is None or backend.kind == "sql":
            return _of_data(agent, "url", reason)
        if "LOOM_SECRET_" in reason:
            return _of_data(agent, "auth.secret", reason)
        unknown = [place for place, name in enumerate(backend.operations or ()) if f"no operation {name!r}" in reason]
        path = f"operations[{unknown[0]}]" if unknown else "url" if reason.startswith("the url") else "openapi"
        return _of_data(agent, path, reason)


@dataclass(frozen=True, slots=True)
class _ServerLook:
    inspection: Inspection
    agent: Agent
    server: McpServer

    def found(self) -> Found:
        unread, problems = (f"{self.server.name}__",), tuple(self._unready())
        if problems or not self.inspection.reaches_out:
            return Found(problems=problems, unread=unread)
        offer = self.inspection.registry.tool_provider.offer(self.server)
        problems = tuple(self._problem(problem) for problem in offer.problems)
        return Found(offer.tools, problems, () if offer.tools else unread)

    def failed(self, why: str) -> Found:
        problem = self._problem(f"the MCP server {self.server.name!r} {why}")
        return Found(problems=(problem,), unread=(f"{self.server.name}__",))

    def _unready(self) -> Iterator[Problem]:
        server, path = self.server, self.agent.at(f"mcp_servers.{self.server.name}")
        secrets = self.inspection.settings.secrets
        for member, values in (("env", server.env), ("headers", server.headers)):
            for name, value in values.items():
                try:
                    servers.filled({name: value}, secrets)
                except LoomError as error:
                    yield self.agent.problem(f"{path}.{member}.{name}", str(error))
        if server.command is not None and shutil.which(server.command) is None:
            text = f"the command {server.command!r} is not installed, or not on the PATH"
            yield self.agent.problem(f"{path}.command", text)

    def _problem(self, text: str) -> Problem:
        """Placed at the name in the server's own list, where it is of one."""
        path = self.agent.at(f"mcp_servers.{self.server.name}")
        for place, name in enumerate(self.server.tools or ()):
            if text.endswith(f"it has no usable tool {name!r}"):
                listed = f"{path}.tools[{place}]"
                return self.agent.problem(listed if listed in self.agent.lines else path, text)
        return self.agent.problem(path, text)


@dataclass(frozen=True, slots=True)
class _EmbedderLook:
    inspection: Inspection
    agent: Agent
    model: str

    def found(self) -> Found:
        try:
            embedder = adapter(self.model, self.inspection.settings)
            if isinstance(embedder, StaticModel):
                embedder.check()
            if self.inspection.reaches_out:
                embedder.embed(["Loom"], kind="query", timeout_s=EMBEDDING_S, may_be_sent=lambda: True)
        except LoomError as error:
            return Found(problems=(self._problem(str(error), is_warning=isinstance(error, Transient)),))
        return Found()

    def failed(self, why: str) -> Found:
        return Found(problems=(self._problem(f"the embedding model {self.model} {why}", is_warning=True),))

    def _problem(self, text: str, *, is_warning: bool) -> Problem:
        path = self.agent.at("sessions.memory.embeddings.model")
        return self.agent.problem(path, text, is_warning=is_warning)


@dataclass(frozen=True, slots=True)
class _PythonLook:
    inspection: Inspection
    agent: Agent

    def found(self) -> Found:
        agent, tools, problems = self.agent, list[Tool](), list[Problem]()
        names = self._taken()
        for target in agent.custom:
            one = custom.load((target,), Path(agent.file).parent.absolute(), taken=names)
            tools += one.tools
            names |= {tool.spec.name for tool in one.tools}
            path = _listed_at(agent, target)
            problems += [agent.problem(path, each, is_warning=each in one.unknown) for each in one.problems]
        problems += self._judges()
        packages = custom.installed(taken=names)
        problems += [Problem(problem, field=custom.GROUP) for problem in packages.problems]
        return Found((*tools, *packages.tools), tuple(problems))

    def _judges(self) -> Iterator[Problem]:
        agent = self.agent
        for n, member in enumerate(agent.judges.members if agent.judges else ()):
            if member.type == "python":
                try:
                    judging_function(str(member.criteria), Path(agent.file).parent.absolute())
                except LoomError as error:
                    yield agent.problem(agent.at(f"judges.members[{n}].criteria"), str(error))

    def _taken(self) -> set[str]:
        own: tuple[Tool, ...] = self.inspection.registry.own(self.agent)
        with contextlib.suppress(LoomError):  # reported by the check of the data
            data = self.inspection.registry.tool_provider.data(self.agent)
            own = (*own, *(data.tools() if data else ()))
        return {tool.spec.name for tool in own}

    def failed(self, why: str) -> Found:
        problem = self.agent.problem(self.agent.at("tools"), f"the loading of its Python tools {why}")
        return Found(problems=(problem,), unread=("",))


def _of_calls(agents: Agents, workflows: workflow_files.Workflows) -> Iterator[Problem]:
    """What is wrong with whom agents may call, those that workflows define among them."""
    inline = {name: agent for workflow in workflows.workflows.values() for name, agent in workflow.agents.items()}
    for agent in (*agents.agents.values(), *inline.values()):
        yield from check.called(agent, agents, others=inline)


def _of_data(agent: Agent, path: str, text: str) -> Problem:
    """A problem of an agent's data, or of the data that all agents without some of their own have."""
    if path == "url" and (agent.backend is None or agent.backend.url is None):
        return Problem(text, f"set {BACKEND_URL}, or mend what it names", field=BACKEND_URL)
    return agent.problem(agent.at(f"backend.{path}"), text)


def _is_yet_to_be_made(agent: Agent, settings: Settings) -> bool:
    """True while the sample shop, which `loom up` makes, is not there."""
    is_sample = settings.has_sample_backend and agent.backend is not None and agent.backend.kind == "sql"
    own = agent.backend.url if agent.backend else None
    return is_sample and own is None and not (settings.home / "shop.db").exists()


def _listed_at(agent: Agent, target: str) -> str:
    """The path of a Python file or module in the lists of tools."""
    return next((path for path, listed in check.listed(agent) if listed == target), agent.at("tools"))


def side_by_side(looks: Sequence[Look], look_s: float) -> list[Found]:
    """What all of them found, in their order; those that are late go on, in threads that keep no process from ending.

    Args:
        look_s: seconds for all of them together.
    """
    found: dict[int, Found] = {}
    waiting, done = SimpleQueue[int](), SimpleQueue[int]()
    for place in range(len(looks)):
        waiting.put(place)

    def work() -> None:
        with contextlib.suppress(Empty):
            while True:
                place = waiting.get_nowait()
                found[place] = _looked(looks[place])
                done.put(place)

    for _ in range(min(LOOKERS, len(looks))):
        threading.Thread(target=work, name="loom-look", daemon=True).start()
    until_s = time.monotonic() + look_s
    with contextlib.suppress(Empty):
        for _ in looks:
            done.get(timeout=max(0.0, until_s - time.monotonic()))
    late = f"did not end within {look_s:g} s"
    return [found[place] if place in found else look.failed(late) for place, look in enumerate(looks)]


def _looked(look: Look) -> Found:
    try:
        return look.found()
    # The top of a thread: drivers and users' packages raise what they like, and here a failure is the finding.
    except Exception as error:
        log.debug("a look at a source of agent %s failed", look.agent.name, exc_info=True)
        return look.failed(f"failed: {type(error).__name__}: {str(error)[:200]}")
