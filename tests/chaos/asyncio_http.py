"""A small HTTP/1.1 server on asyncio's protocols: cheap, and quick to notice that its client is gone.

The death of a client ends what it had asked for at once, so a log of requests tells what was under way when a process
was killed.
"""

import asyncio
import json
import signal
import socket
import struct
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAX_HEAD_BYTES = 64 * 1024


@dataclass(frozen=True)
class Asked:
    """A request, whole."""

    method: str
    path: str
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes
    at_s: float
    """When its last byte was there."""


class Connection(asyncio.Protocol):
    """One client's connection: one request after the other, each answered by ``answer``.

    The task that answers is cancelled when the client goes.
    """

    def __init__(self, number: int, answer: Callable[[Asked, "Connection"], Awaitable[None]]) -> None:
        self.number = number
        self.gone_s: float | None = None
        """When the client, or this server, ended the connection."""
        self.on_gone: Callable[[Connection], None] = lambda _: None
        self._answer = answer
        self._buffer = bytearray()
        self._task: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._begin_next()

    def eof_received(self) -> None:
        self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()

    def send(self, data: bytes) -> None:
        """Write at once."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def whole(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        """A response of known length."""
        sized = {"content-type": "application/json", **(headers or {}), "content-length": str(len(body))}
        self.send(head(status, sized) + body)

    def close(self) -> None:
        """End the connection with what was sent so far."""
        if self._transport is not None:
            self._transport.close()

    def reset(self) -> None:
        """End the connection with RST: the client's next read fails."""
        if self._transport is not None:
            linger = struct.pack("ii", 1, 0)
            self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self._transport.abort()

    def _begin_next(self) -> None:
        if self._task is None:
            asked = self._take_request()
            if asked is not None:
                self._task = asyncio.get_running_loop().create_task(self._run(asked))

    async def _run(self, asked: Asked) -> None:
        try:
            await self._answer(asked, self)
        finally:
            self._task = None
        self._begin_next()

    def _take_request(self) -> Asked | None:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > MAX_HEAD_BYTES:
                self.close()
            return None
        first, *lines = bytes(self._buffer[:end]).decode("latin-1").split("\r\n")
        headers = {name.strip().lower(): text.strip() for name, _, text in (line.partition(":") for line in lines)}
        length = int(headers.get("content-length", "0"))
        if len(self._buffer) < end + 4 + length:
            return None
        body = bytes(self._buffer[end + 4 : end + 4 + length])
        del self._buffer[: end + 4 + length]
        method, path, *_ = first.split(" ")
        return Asked(method, path, headers, body, time.time())

    def _end(self) -> None:
        if self.gone_s is None:
            self.gone_s = time.time()
            if self._task is not None:
                self._task.cancel()
            self.on_gone(self)


def head(status: int, headers: Mapping[str, str]) -> bytes:
    """Status line and headers with the empty line after them."""
    lines = [f"HTTP/1.1 {status} Status", *(f"{name}: {text}" for name, text in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked response; none for no data, which would end it."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


LAST_CHUNK = b"0\r\n\r\n"


class Log:
    """JSON lines, each written whole in one system call."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)

    def write(self, line: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")

    def close(self) -> None:
        self._file.close()


def read_log(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a log; what a killed writer left unfinished at the end is left out."""
    if not path.exists():
        return
    with path.open("rb") as lines:
        for line in lines:
            with suppress(ValueError):
                yield json.loads(line)


async def serve(
    answer: Callable[[Asked, Connection], Awaitable[None]],
    *,
    port: int,
    on_gone: Callable[[Connection], None] = lambda _: None,
    is_listening: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve on loopback until SIGTERM or SIGINT.

    Args:
        port: 0 for one that is free.
        is_listening: told the URL as soon as clients can connect.
    """
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    numbers = iter(range(1, 1 << 62))

    def connect() -> Connection:
        connection = Connection(next(numbers), answer)
        connection.on_gone = on_gone
        return connection

    server = await loop.create_server(connect, "127.0.0.1", port, backlog=2048)
    is_listening(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    await stop.wait()
    server.close()


def announce(url: str) -> None:
    """Tell the parent process on standard output, which it reads a line of."""
    print(url, flush=True)  # noqa: T201  # the caller reads the URL
