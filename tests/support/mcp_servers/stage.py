"""MCP servers under test, and all that is left of them afterwards: nothing."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from loom_worker.backends.mcp.connection import Limits
from loom_worker.backends.mcp.servers import McpServers
from loom_worker.core.values.agents import McpServer
from loom_worker.core.values.tools import Caller, Tool
from tests.support.until import until
from tests.support.webhook_receiver import unused_port

HERE = Path(__file__).parent
CALLER = Caller("lane", "s", "w", "t", "c")


class Stage:
    """The servers of one process."""

    def __init__(self, *, timeout_s: float = 60.0, limits: Limits | None = None, **secrets: str) -> None:
        self.kept: dict[str, str] = {}
        self.servers = McpServers(
            secrets=secrets,
            remember=self.kept.__setitem__,
            recall=self.kept.get,
            timeout_s=timeout_s,
            limits=limits or Limits(),
        )

    def tools(self, server: McpServer) -> dict[str, Tool]:
        """By the server's own names; AssertionError if anything is missing."""
        offer = self.servers.tools([server])
        assert offer.problems == (), offer.problems
        return {tool.spec.name.partition("__")[2]: tool for tool in offer.tools}

    def problem(self, server: McpServer) -> str:
        """Why a server gives no tools."""
        offer = self.servers.tools([server])
        assert offer.tools == ()
        (problem,) = offer.problems
        return problem


def run(tool: Tool, **arguments: Any) -> Any:
    return tool.run(arguments, CALLER)


@contextmanager
def staged(**options: Any) -> Iterator[Stage]:
    """A stage that is closed afterwards; no thread of it may stay."""
    before = set(threading.enumerate())
    stage = Stage(**options)
    try:
        yield stage
    finally:
        stage.servers.close()
        until(lambda: set(threading.enumerate()) <= before, 5, "all threads ended")


def odd(how: str, folder: Path | None = None, **more: Any) -> McpServer:
    """A server that breaks the protocol."""
    where = () if folder is None else (str(folder),)
    return McpServer("odd", command=sys.executable, args=("-S", str(HERE / "odd.py"), how, *where), **more)


def mute(folder: Path) -> McpServer:
    """A server that says nothing, ever; a shell, so that it has left its process id long before it is given up."""
    script = 'echo $$ > "$0"; exec sleep 600'
    return McpServer("mute", command="sh", args=("-c", script, str(folder / "pids")))


def sdk(folder: Path, **more: Any) -> McpServer:
    """A server of the official SDK, as a command."""
    env = {"FOLDER": str(folder), **more.pop("env", {})}
    return McpServer("sdk", command=sys.executable, args=(str(HERE / "sdk.py"), "stdio"), env=env, **more)


@contextmanager
def listening(folder: Path, *options: str, port: int = 0) -> Iterator[tuple[McpServer, "subprocess.Popen[bytes]"]]:
    """The same over HTTP."""
    port = port or unused_port()
    command = (sys.executable, str(HERE / "sdk.py"), "http", str(port), *options)
    environ = {**os.environ, "FOLDER": str(folder)}
    with subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            until(lambda: _accepts(port), 30, "the server listens")
            yield McpServer("sdk", url=f"http://127.0.0.1:{port}/mcp", allow_private=True), process
        finally:
            process.kill()


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
