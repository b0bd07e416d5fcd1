"""All MCP servers of a process: their tools as Loom's, and the calls of these."""

import asyncio
import hashlib
import os
import threading
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from loom_worker.backends.mcp.config import environment, filled, key, used
from loom_worker.backends.mcp.connection import Connection, Limits
from loom_worker.backends.mcp.listing import ListedTool, ToolListing, chosen, names
from loom_worker.backends.mcp.server_log import Said
from loom_worker.backends.mcp.session import Link
from loom_worker.backends.mcp.tool_cache import Known, Recall, Remember
from loom_worker.core.errors import ToolFailed
from loom_worker.core.values.agents import Content, McpServer
from loom_worker.core.values.chat import ToolSpec
from loom_worker.core.values.json import Json
from loom_worker.core.values.tools import Caller, Tool

T = TypeVar("T")


class Loop:
    """Started when first used. The thread is a daemon: a process may end without closing it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run it there.

        Raises:
            ToolFailed: after close (UNAVAILABLE).
        """
        with self._lock:
            if self._is_closed:
                work.close()
                raise ToolFailed("this worker is stopping", "UNAVAILABLE")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name=self._name, daemon=True)
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """End what still runs there, and the thread; afterwards nothing can be submitted."""
        with self._lock:
            self._is_closed = True
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None:
            return
        asyncio.run_coroutine_threadsafe(_end_all(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


async def _end_all() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


DEFAULT = Limits()
LATE_S = 2.0
"""Beyond its timeout a call may take this long where the loop itself is busy."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What the servers of an agent give it."""

    tools: tuple[Tool, ...] = ()
    problems: tuple[str, ...] = ()
    """Why tools, or all tools of a server, are missing; each names the server."""


@dataclass(frozen=True, slots=True)
class _Server:
    known: Known
    connection: Connection
    said: Said


class McpServers:
    """One for a process; any thread may use it. Servers are started when their tools are first needed."""

    def __init__(
        self,
        *,
        secrets: Mapping[str, str],
        remember: Remember,
        recall: Recall,
        timeout_s: float,
        environ: Mapping[str, str] | None = None,
        limits: Limits = DEFAULT,
    ) -> None:
        """Take the parts; nothing is started yet.

        Args:
            secrets: by their names, for ``secret:NAME`` in ``env`` and ``headers``.
            timeout_s: of a call as its caller sees it; ours ends a little before.
            environ: where commands find PATH, HOME and the like; None: the process's own.
        """
        self._secrets = secrets
        self._remember = remember
        self._recall = recall
        self._timeout_s = timeout_s
        self._environ = environ
        self._limits = limits
        self._content = Content()
        self._loop = Loop("loom-mcp")
        self._lock = threading.Lock()
        self._servers: dict[str, _Server] = {}

    def share(self, content: Content) -> None:
        """Have the lists of tools compared with those that other processes have; before the first question."""
        self._content = content

    def tools(self, servers: Sequence[McpServer]) -> Offer:
        """The tools of these servers; asks only those of which nothing is known, and waits discovery_s at most."""
        ours = [(server, self._server(server)) for server in servers]
        readings = [reading for _, one in ours if (reading := one.known.look()) and one.known.listing is None]
        wait_for(readings, timeout=self._limits.discovery_s)
        kept: list[tuple[McpServer, _Server, ListedTool]] = []
        problems: list[str] = []
        for server, one in ours:
            listed, flaws = self._of(server, one.known)
            kept += [(server, one, tool) for tool in listed]
            problems += [f"MCP server {server.name!r}: {one.said.masked(flaw)}" for flaw in flaws]
        named = names((server.name, tool.name) for server, _, tool in kept)
        tools = tuple(self._tool(named[server.name, tool.name], server, one, tool) for server, one, tool in kept)
        return Offer(tools, tuple(problems))

    def stamp(self, servers: Sequence[McpServer]) -> str:
        """Changes when ``tools`` would give others than before. Quick: it waits for no server.

        It also reads lists that could not be read so far, so callers that cache tools ask it before using them.
        """
        digest = hashlib.sha256()
        for server in servers:
            known = self._server(server).known
            known.look()
            digest.update((known.digest() or "none").encode())
        return digest.hexdigest()[:16]

    def close(self) -> None:
        """End all servers, in a second or two; calls that are under way fail."""
        with self._lock:
            servers, self._servers = [*self._servers.values()], {}
        if servers:
            self._loop.submit(_close_all([one.connection for one in servers])).result()
        self._loop.close()

    def _server(self, server: McpServer) -> _Server:
        with self._lock:
            name = key(server)
            if name not in self._servers:
                self._servers[name] = self._made(name, server)
            return self._servers[name]

    def _made(self, name: str, server: McpServer) -> _Server:
        said, part = Said(server.name, used(server, self._secrets)), f"mcp:{name}"

        async def found(listing: ToolListing) -> None:
            await asyncio.to_thread(known.found, listing)
            await asyncio.to_thread(self._content.accepted, part)

        def read() -> Future[None]:
            return self._loop.submit(connection.refresh())

        connection = Connection(partial(self._reach, server, said), found, self._limits)
        known = Known(name, server.name, remember=self._remember, recall=self._recall, read=read)
        self._content.follow(part, known)
        return _Server(known, connection, said)

    def _of(self, server: McpServer, known: Known) -> tuple[tuple[ListedTool, ...], tuple[str, ...]]:
        if known.listing is None:
            late = f"its tools were not read within {self._limits.discovery_s:g} s; they come when they are"
            return (), (known.problem or late,)
        tools, absent = chosen(known.listing, server)
        return tools, (*known.listing.problems, *absent)

    def _reach(self, server: McpServer, said: Said) -> Link:
        if server.url is not None:
            from loom_worker.backends.mcp.http import HttpLink  # httpx2 is for those who use it

            return HttpLink(server, filled(server.headers, self._secrets), silence_s=self._timeout_s + 10.0)
        from loom_worker.backends.mcp.stdio import StdioLink

        ours = os.environ if self._environ is None else self._environ
        return StdioLink(server, environment(server, self._secrets, ours), said)

    def _tool(self, name: str, server: McpServer, one: _Server, tool: ListedTool) -> Tool:
        """Ours of theirs. Hints give no rights: only tools that the operator listed may count as reading only."""
        return Tool(
            spec=ToolSpec(name, tool.description, tool.input_schema),
            run=partial(self._run, server.name, one, tool.name),
            is_idempotent=tool.says_idempotent or tool.says_read_only,
            is_read_only=tool.says_read_only and server.tools is not None,
            is_repeatable=tool.says_idempotent,
            timeout_s=self._timeout_s,
            group=f"mcp:{server.name}",
        )

    def _run(self, server: str, one: _Server, tool: str, arguments: Json, _caller: Caller) -> object:
        limit_s = self._timeout_s - min(1.0, self._timeout_s / 4)
        called = self._loop.submit(one.connection.call(tool, arguments, limit_s))
        try:
            return called.result(limit_s + LATE_S)
        except ToolFailed as failed:
            text = one.said.masked(str(failed))
            if failed.code != "UNAVAILABLE":
                raise ToolFailed(text, *failed.args[1:]) from failed
            raise ToolFailed(f"MCP server {server!r} is unavailable: {text}", failed.code) from failed
        except TimeoutError as error:
            called.cancel()
            raise ToolFailed(f"MCP server {server!r} did not answer within {limit_s:g} s", "UNAVAILABLE") from error


async def _close_all(connections: Sequence[Connection]) -> None:
    await asyncio.gather(*(connection.close() for connection in connections))
