"""A server that is a command: started, spoken to over its pipes, and ended with all it started.

Whatever it prints outside of the protocol goes to Loom's log: with its name, secrets masked, and limited.
"""

import asyncio
import contextlib
import logging
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from loom_worker.backends.mcp import child
from loom_worker.backends.mcp.listing import plain
from loom_worker.core.values.agents import McpServer

if TYPE_CHECKING:
    from mcp.shared.message import SessionMessage


MAX_LINES = 50
"""Logged in any ten seconds; more are left out."""
_WINDOW_S = 10.0
MAX_LINE_CHARS = 300
MOST_AT_ONCE = 2000
"""Messages that answer nothing: a server that sends more only keeps us busy."""
MORE_PER_S = 100
"""So many are forgotten each second: far fewer than a busy machine reads, or it would never notice a flood."""

log = logging.getLogger(__name__)


class Said:
    """The log of one server."""

    def __init__(self, name: str, secrets: Sequence[str] = ()) -> None:
        self.last = ""
        """The latest line of its standard error."""
        self._name = name
        self._secrets = secrets
        self._window_ends_s = 0.0
        self._no_strays_before_s = 0.0
        self._lines = 0

    async def listen(self, err: asyncio.StreamReader) -> None:
        """Log its standard error until that is closed."""
        rest = b""
        while piece := await err.read(16 * 1024):
            *lines, rest = (rest[-16 * 1024 :] + piece).split(b"\n")
            for line in lines:
                self._log_line(line)
            await asyncio.sleep(0)
        self._log_line(rest)

    def stray(self, line: bytes) -> None:
        """Log a line of its standard output that is no message; one in ten seconds will do."""
        if (now_s := time.monotonic()) >= self._no_strays_before_s:
            self._no_strays_before_s = now_s + _WINDOW_S
            self._tell(line, logging.WARNING, "MCP server %s wrote on its standard output what is no message: %s")

    def masked(self, text: str) -> str:
        """The text without the server's secrets."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    def _log_line(self, line: bytes) -> None:
        if text := self._tell(line, logging.INFO, "MCP server %s: %s"):
            self.last = text

    def _tell(self, line: bytes, level: int, form: str) -> str:
        text = plain(self.masked(line[: 4 * MAX_LINE_CHARS].decode("utf-8", "replace")), MAX_LINE_CHARS)
        if not text:
            return text
        now_s = time.monotonic()
        if now_s > self._window_ends_s:
            self._window_ends_s, self._lines = now_s + _WINDOW_S, 0
        self._lines += 1
        if self._lines <= MAX_LINES:
            log.log(level, form, self._name, text)
        elif self._lines == MAX_LINES + 1:
            log.warning("MCP server %s says too much: its further lines are left out for a while", self._name)
        return text


class Flood:
    """Counts what answers nothing."""

    def __init__(self) -> None:
        self._number = 0.0
        self._counted_s = time.monotonic()

    def count(self) -> None:
        """One more.

        Raises:
            ValueError: too many, too fast.
        """
        now_s = time.monotonic()
        self._number = max(0.0, self._number - (now_s - self._counted_s) * MORE_PER_S) + 1
        self._counted_s = now_s
        if self._number > MOST_AT_ONCE:
            raise ValueError(f"more than {MOST_AT_ONCE} messages that answer nothing, over {MORE_PER_S} a second")


MAX_MESSAGE_BYTES = 32 * 1024 * 1024
"""Bytes of one line; 10 MB of text or bytes fit, escaped as JSON or in base64."""
PARTING_S = 0.5
"""A server may take this long to end by itself once its input is closed."""
_REAPED_S = child.GRACE_S + 2.0
_LOOK_EVERY_S = 0.01


class StdioTransport:
    """One run of the command.

    The SDK has such a transport, too; this one bounds what a server may send, survives bytes that are no UTF-8,
    hands down no variable of ours, ends in a second, and takes the whole tree of processes with it, also when this
    process is killed.
    """

    def __init__(self, server: McpServer, environ: Mapping[str, str], said: Said) -> None:
        self._server = server
        self._environ = environ
        self._said = said
        self._process: subprocess.Popen[bytes] | None = None
        self._lifeline: int | None = None
        self._why = ""

    @property
    def exit_reason(self) -> str:
        """How the server ended, as far as is known."""
        status = self._process.returncode if self._process else None
        if self._why or status is None:
            return self._why or "closed its output"
        if status > 128:
            return f"was killed by signal {status - 128}"
        return f"exited with status {status}" + (f": {self._said.last}" if status and self._said.last else "")

    def kill(self, why: str) -> None:
        """End it at once; ``why`` is the exit reason."""
        self._why = self._why or why
        if self._lifeline is not None:
            with contextlib.suppress(BrokenPipeError):  # it has just ended by itself
                os.write(self._lifeline, b"9")
        self._let_go()

    @contextlib.asynccontextmanager
    async def streams(self, over: asyncio.Event) -> AsyncIterator[tuple[Any, Any]]:
        """Start the command; ``over`` is set when it ends.

        Raises:
            OSError: the process cannot be made.
        """
        import anyio

        loop = asyncio.get_running_loop()
        process = self._start()
        stdin, stdout, stderr = (cast(IO[bytes], pipe) for pipe in (process.stdin, process.stdout, process.stderr))
        to_session, from_server = anyio.create_memory_object_stream[Any](0)
        to_server, from_session = anyio.create_memory_object_stream[Any](0)
        out, out_pipe = await _readable(loop, stdout, MAX_MESSAGE_BYTES)
        err, err_pipe = await _readable(loop, stderr, 64 * 1024)
        writer = await _writable(loop, stdin)
        listening = loop.create_task(self._said.listen(err))
        reading = loop.create_task(self._read(out, to_session.send, listening, over))
        writing = loop.create_task(_write(writer, from_session))
        reading.add_done_callback(lambda _: to_session.close())
        writing.add_done_callback(lambda _: from_session.close())
        tasks = (listening, reading, writing)
        try:
            yield from_server, to_server
        finally:
            await self._end(process, writer)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for stream in (to_session, from_server, to_server, from_session):
                stream.close()
            for pipe in (out_pipe, err_pipe):
                pipe.close()

    def _start(self) -> subprocess.Popen[bytes]:
        reading, self._lifeline = os.pipe()
        command = (self._server.command or "", *self._server.args)
        try:
            self._process = subprocess.Popen(
                (sys.executable, "-I", "-S", str(Path(child.__file__)), str(reading), *command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                env=dict(self._environ),
                pass_fds=(reading,),
                start_new_session=True,  # a Ctrl-C at our terminal is not for it
            )
        except BaseException:
            self._let_go()
            raise
        finally:
            os.close(reading)
        return self._process

    async def _read(
        self,
        out: asyncio.StreamReader,
        deliver: Callable[["SessionMessage"], Any],
        listening: asyncio.Task[None],
        over: asyncio.Event,
    ) -> None:
        flood = Flood()
        try:
            while line := await out.readline():
                message = _message(line)
                if message is None:
                    self._said.stray(line)
                if message is None or not _is_answer(message):
                    flood.count()
                    await asyncio.sleep(0)  # with a full buffer readline never lets anybody else run
                if message is not None:
                    await deliver(message)
        except ValueError as error:
            self.kill(f"was ended, since it sent too much: {error}")
        finally:
            await self._exited(PARTING_S)
            await asyncio.wait({listening}, timeout=PARTING_S)  # its last words say why
            over.set()

    async def _end(self, process: subprocess.Popen[bytes], writer: asyncio.StreamWriter) -> None:
        if not self._why and not writer.transport.get_write_buffer_size():
            writer.close()
            await self._exited(PARTING_S)
        if not writer.is_closing():
            writer.transport.abort()
        self._let_go()
        await self._exited(_REAPED_S)
        if process.returncode is None:  # our own watcher hangs, such as in a stopped container
            process.kill()
            await self._exited(_REAPED_S)

    async def _exited(self, timeout_s: float) -> None:
        """Wait for the exit status; polled, since asyncio's own way needs a thread for each process."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._process is not None and self._process.poll() is None:
                    await asyncio.sleep(_LOOK_EVERY_S)

    def _let_go(self) -> None:
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None


async def _write(writer: asyncio.StreamWriter, messages: Any) -> None:
    with contextlib.suppress(OSError):  # it is gone; the reading side says so
        async for each in messages:
            writer.write(each.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
            await writer.drain()


def _message(line: bytes) -> "SessionMessage | None":
    """What a line says; None if it is nothing of the protocol."""
    import json

    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError:
        if b"\\ud" not in line.lower():
            return None
    try:  # half of a surrogate pair, as JavaScript leaves it where it cuts a text: only Python's own parser takes it
        text = json.dumps(json.loads(line), ensure_ascii=False).encode("utf-8", "replace")
        return SessionMessage(jsonrpc_message_adapter.validate_json(text, by_name=False))
    except ValueError:
        return None


def _is_answer(message: "SessionMessage") -> bool:
    from mcp_types import JSONRPCError, JSONRPCResponse

    return isinstance(message.message, JSONRPCResponse | JSONRPCError)


async def _readable(
    loop: asyncio.AbstractEventLoop, pipe: IO[bytes], limit: int
) -> tuple[asyncio.StreamReader, asyncio.BaseTransport]:
    reader = asyncio.StreamReader(limit)
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    return reader, transport


async def _writable(loop: asyncio.AbstractEventLoop, pipe: IO[bytes]) -> asyncio.StreamWriter:
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), pipe
    )
    return asyncio.StreamWriter(transport, protocol, None, loop)
