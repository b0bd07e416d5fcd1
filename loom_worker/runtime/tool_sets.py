"""The tools of agents: of their data, their servers and their users' files, and those that every agent has."""

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from loom_worker.backends.documents.backend import DocumentsBackend
from loom_worker.backends.mcp.servers import McpServers, Offer
from loom_worker.backends.rest.backend import RestBackend
from loom_worker.backends.sql import SqlBackend
from loom_worker.core.errors import BadSettings, LoomError
from loom_worker.core.settings import Settings
from loom_worker.core.values.agents import Agent, Backend, McpServer
from loom_worker.core.values.tools import Tool
from loom_worker.tools import custom
from loom_worker.tools.custom import ToolFiles

log = logging.getLogger(__name__)


Data = SqlBackend | RestBackend | DocumentsBackend
"""What an agent works on."""


@dataclass(frozen=True, slots=True)
class Own:
    """The tools of one agent, without those that every agent has."""

    tools: tuple[Tool, ...]
    always: frozenset[str] = frozenset()
    """Names that the agent's file asks for by where they come from, so its list of names need not hold them."""
    problems: tuple[str, ...] = ()


class ToolProvider:
    """All tools of a process; any thread may use it, and nothing is connected before it is needed."""

    def __init__(
        self,
        settings: Settings,
        *,
        servers: McpServers,
        files: ToolFiles,
        standing: Sequence[Tool],
        common: Sequence[Tool],
    ) -> None:
        """Take the parts.

        Args:
            standing: tools that every agent has, whatever it lists.
            common: tools that every agent may have, if its list names them.
        """
        self._settings = settings
        self._servers = servers
        self._files = files
        self.common = tuple(common)
        self.standing = tuple(standing)
        self._lock = threading.Lock()
        self._data: dict[tuple[Backend, Path], Data] = {}

    def own(self, agent: Agent, database: str | None = None) -> Own:
        """The agent's tools; what is wrong with one source of them costs that source alone.

        Args:
            database: which of its databases the session works on, in place of the agent's own.

        Raises:
            LoomError: the agent's data cannot be used at all.
        """
        data = self.data(agent, database)
        tools = (*self.common, *(data.tools() if data else ()))
        taken = {tool.spec.name for tool in tools}
        folder = _folder(agent)
        targets = custom.load(agent.custom, folder, taken=taken, read=self._files.tools)
        taken |= {tool.spec.name for tool in targets.tools}
        installed = custom.installed(taken=taken)
        offer = self._servers.tools(servers_of(agent)) if agent.mcp_servers else None
        given = offer.tools if offer else ()
        always = {tool.spec.name for tool in (*targets.tools, *(given if agent.allows_mcp else ()))}
        left_out = data.problems if isinstance(data, RestBackend) else ()
        problems = (*left_out, *targets.problems, *installed.problems, *(offer.problems if offer else ()))
        return Own((*tools, *targets.tools, *installed.tools, *given), frozenset(always), problems)

    def offer(self, server: McpServer) -> Offer:
        """The tools of a server; waits ten seconds at most for one that nobody asked before."""
        return self._servers.tools((server,))

    def data(self, agent: Agent, database: str | None = None) -> Data | None:
        """What the agent works on, None if on nothing; it is not connected to yet.

        Raises:
            LoomError: its URL, document or secret cannot be used.
        """
        if agent.backend is None:
            return None
        backend, folder = agent.backend, _folder(agent)
        if backend.kind == "sql":
            if backend.url is None and database is None:
                folder = Path()  # a path of a setting begins where the process was started
            url = backend.url or self._settings.backend_url
            backend = replace(backend, url=url if database is None else _switched(url, database))
        with self._lock:
            key = (backend, folder)
            if key not in self._data:
                self._data[key] = self._made(*key)
            return self._data[key]

    def schema(self, agent: Agent, database: str | None = None) -> str:
        """What the agent's data holds, for its system text; a sentence on why where it does not answer."""
        data = self.data(agent, database)
        if data is None:
            return ""
        try:
            return data.describe()
        except LoomError as error:
            return f"(its schema cannot be read now: {error})"

    def kinds(self, agent: Agent) -> frozenset[str]:
        """What the agent works on, in the words of patterns' backend_type: ``sql`` and its dialect, or ``rest``."""
        backend, servers = agent.backend, {"mcp"} if agent.mcp_servers else set()
        if backend is None:
            return frozenset(servers)
        if backend.kind != "sql":
            return frozenset({backend.kind, *servers})
        try:
            dialect = make_url(backend.url or self._settings.backend_url).get_backend_name()
        except ArgumentError:  # reported when it is connected to
            return frozenset({"sql", *servers})
        alike = {"mysql", "mariadb"} if dialect in ("mysql", "mariadb") else {dialect}
        return frozenset({"sql", *alike, *servers})

    def stamp(self, agent: Agent) -> str:
        """Changes when the agent's servers or its files have other tools than before."""
        offered = self._servers.stamp(servers_of(agent)) if agent.mcp_servers else ""
        return f"{offered} {self._files.stamp(agent.custom, _folder(agent))}" if agent.custom else offered

    def close(self) -> None:
        with self._lock:
            data, self._data = [*self._data.values()], {}
        for each in data:
            each.close()
        self._servers.close()

    def _made(self, backend: Backend, folder: Path) -> Data:
        timeout_s = max(1.0, self._settings.limits.tool_timeout_s - 2)
        if backend.kind == "rest":
            secret = self._secret(backend.auth.secret) if backend.auth else None
            return RestBackend(backend, secret=secret, folder=folder, timeout_s=timeout_s)
        if backend.kind == "documents":
            index = self._settings.home / "documents"
            return DocumentsBackend(folder / (backend.path or ""), index, timeout_s=timeout_s)
        most_bytes = self._settings.tools.max_result_bytes
        return SqlBackend(
            backend.url or "", folder=folder, scope=backend.scope, max_result_bytes=most_bytes, timeout_s=timeout_s
        )

    def _secret(self, name: str) -> str:
        try:
            return self._settings.secrets[name]
        except KeyError as error:
            raise BadSettings(f"LOOM_SECRET_{name} is not set; the agent's auth names it") from error


def servers_of(agent: Agent) -> tuple[McpServer, ...]:
    """The agent's servers; a command with a slash in it is a path, which begins at the agent's file."""
    folder = _folder(agent)
    return tuple(
        replace(server, command=str(folder / server.command)) if server.command and "/" in server.command else server
        for server in agent.mcp_servers
    )


def _folder(agent: Agent) -> Path:
    return Path(agent.source.rpartition(":")[0]).parent.absolute()


def _switched(url: str, database: str) -> str:
    """The URL of another database behind the same server, or of another file."""
    return make_url(url).set(database=database).render_as_string(hide_password=False)
