"""All MCP servers of a process: their secrets, what is known of each, their tools as Loom's, and the calls of these."""

import asyncio
import hashlib
import json
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from dataclasses import dataclass
from functools import partial

from loom_worker.backends.mcp.connection import Connection, Limits, Loop
from loom_worker.backends.mcp.listing import ListedTool, ToolListing, chosen, names
from loom_worker.backends.mcp.session import Transport
from loom_worker.backends.mcp.stdio import Said, StdioTransport
from loom_worker.core.errors import LoomError, ToolFailed
from loom_worker.core.values.agents import Content, McpServer
from loom_worker.core.values.chat import ToolSpec
from loom_worker.core.values.json import Json
from loom_worker.core.values.tools import Caller, Tool

_INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "TERM")
"""All that a command inherits of our environment: none of it is a secret."""
_SECRET = re.compile(r"secret:([A-Za-z0-9_]+)")


def key(server: McpServer) -> str:
    """The same for the same server in every process; secrets are in it by their names only.

    Its name and the choice of its tools are the agent's: two agents with one server share what is known of it.
    """
    same = (server.command, server.args, server.url, server.allow_private, dict(server.env), dict(server.headers))
    return f"mcp:2:{hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()[:32]}"


def filled(values: Mapping[str, str], secrets: Mapping[str, str]) -> dict[str, str]:
    """The values, those that are ``secret:NAME`` replaced by the secret.

    Raises:
        ToolFailed: there is no such secret (UNAVAILABLE).
    """
    return {name: _filled(value, secrets) for name, value in values.items()}


def used(server: McpServer, secrets: Mapping[str, str]) -> tuple[str, ...]:
    """The secrets a server is given, longest first: they are masked in whatever it says."""
    named = [_SECRET.fullmatch(value) for value in (*server.env.values(), *server.headers.values())]
    found = {secrets[match[1]] for match in named if match and secrets.get(match[1])}
    return tuple(sorted(found, key=len, reverse=True))


def environment(server: McpServer, secrets: Mapping[str, str], ours: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of a command: a few harmless variables of ours, and what its file gives it."""
    return {name: ours[name] for name in _INHERITED if name in ours} | filled(server.env, secrets)


def _filled(value: str, secrets: Mapping[str, str]) -> str:
    named = _SECRET.fullmatch(value)
    if named is None:
        return value
    if named[1] not in secrets:
        raise ToolFailed(f"it needs a secret that is not there: set LOOM_SECRET_{named[1]}", "UNAVAILABLE")
    return secrets[named[1]]


LOOK_EVERY_S = 5.0
"""How soon a list of tools that another process read is noticed."""

Remember = Callable[[str, str], None]
"""Keep a text under a key for a day or so, for all processes; may raise LoomError."""
Recall = Callable[[str], str | None]
"""The text kept under a key, None if there is none (any more); may raise LoomError."""

log = logging.getLogger(__name__)


class Known:
    """One server; any thread may ask."""

    def __init__(
        self,
        key: str,
        name: str,
        *,
        remember: Remember,
        recall: Recall,
        read: Callable[[], Future[None]],
        look_every_s: float = LOOK_EVERY_S,
    ):
        """Args: read: begins to read the list of tools; ``found`` is called before its future is done."""
        self._key = key
        self._name = name
        self._remember = remember
        self._recall = recall
        self._read = read
        self._look_every_s = look_every_s
        self._lock = threading.Lock()
        self._listing: ToolListing | None = None
        self._digest: tuple[ToolListing | None, str | None] = None, None
        self._reading: Future[None] | None = None
        self._looked_s = float("-inf")
        self.problem = ""
        """Why the list could not be read, last time it was tried."""

    @property
    def listing(self) -> ToolListing | None:
        """The tools, None while nobody has read them."""
        return self._listing

    def look(self) -> Future[None] | None:
        """Look what all processes know of it, now and then; returns the reading that is under way, if any.

        What is not remembered (any more) is read anew; until then what was known before holds.
        """
        with self._lock:
            if time.monotonic() - self._looked_s >= self._look_every_s:
                self._looked_s = time.monotonic()
                if not self._take_up():
                    self._begin()
            return self._reading

    def digest(self) -> str | None:
        """The digest of the list in use; None while there is none."""
        listing, (known, digest) = self._listing, self._digest
        if listing is not known:
            text = json.dumps(listing.as_json()) if listing else ""
            digest = hashlib.sha256(text.encode()).hexdigest() if listing else None
            self._digest = listing, digest
        return digest

    def renew(self) -> None:
        """Take up what all processes know of it now; the server is not asked."""
        with self._lock:
            self._take_up()

    def found(self, listing: ToolListing) -> None:
        """Keep what was read, here and for all."""
        if listing != self._listing:
            for problem in listing.problems:
                log.warning("MCP server %s: %s", self._name, problem)
        self._listing = listing
        try:
            self._remember(self._key, json.dumps(listing.as_json()))
        except LoomError as error:
            log.warning("the tools of MCP server %s could not be remembered: %s", self._name, error)

    def _begin(self) -> None:
        if self._reading is not None:
            return
        ended = self._reading = Future[None]()
        try:
            self._read().add_done_callback(partial(self._ended, ended))
        except ToolFailed as error:  # this process is stopping
            self._reading, self.problem = None, str(error)

    def _ended(self, ended: Future[None], reading: Future[None]) -> None:
        error = None if reading.cancelled() else reading.exception()
        problem = str(error) if error else ""
        if error is not None and not isinstance(error, ToolFailed):
            log.error("reading the tools of MCP server %s failed", self._name, exc_info=error)
        elif problem and problem != self.problem:
            log.warning("MCP server %s: its tools cannot be read: %s", self._name, problem)
        self.problem, self._reading = problem, None
        ended.set_result(None)

    def _take_up(self) -> bool:
        """Use what all processes know; False if that is nothing."""
        try:
            if (text := self._recall(self._key)) is not None:
                self._listing = ToolListing.from_json(json.loads(text))
                return True
        except LoomError as error:
            log.warning("the tools of MCP server %s could not be recalled: %s", self._name, error)
        except (ValueError, KeyError, TypeError) as error:
            log.warning("what was remembered of MCP server %s is not readable: %r", self._name, error)
        return False


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

    def _reach(self, server: McpServer, said: Said) -> Transport:
        if server.url is not None:
            from loom_worker.backends.mcp.http import HttpTransport  # httpx2 is for those who use it

            return HttpTransport(server, filled(server.headers, self._secrets), silence_s=self._timeout_s + 10.0)
        ours = os.environ if self._environ is None else self._environ
        return StdioTransport(server, environment(server, self._secrets, ours), said)

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
