"""A server behind a URL (streamable HTTP): reached at addresses that were checked, and nowhere else.

Whatever goes wrong below the protocol becomes an error answer of the protocol: an exception would end the SDK's
whole session, with all calls that are under way in it.
"""

import asyncio
import contextlib
import json
import logging
import socket
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx2

from loom_worker import __version__
from loom_worker.backends.mcp.listing import plain
from loom_worker.backends.mcp.session import CODE, EXPIRED, REFUSED, UNREACHABLE
from loom_worker.core.values.agents import McpServer
from loom_worker.guard.net.address import MAX_DIALLED, Deadline, Target, resolve_in_time, target

MAX_BODY_BYTES = 32 * 1024 * 1024
"""Bytes of one answer; as for a command's line."""
CONNECT_S = 5.0
"""For the name server, and for each address."""
MAX_REASON_CHARS = 300
"""Length of a refusal's body that is told."""
_PARTING_S = 0.5
_REST_S = 0.05
_STREAMS, _STREAMS_S = 10, 10.0
"""The SDK opens the stream of notifications anew as often as the server ends it: not more often than this."""


class HttpTransport:
    """One session's connections."""

    def __init__(self, server: McpServer, headers: Mapping[str, str], *, silence_s: float) -> None:
        """Args: silence_s: an answer that stays silent for so long is given up; longer than any call waits."""
        self._server = server
        self._headers = headers
        self._silence_s = silence_s
        self.exit_reason = "ended the connection"

    def kill(self, why: str) -> None:
        """There is no process to end; ``why`` is the exit reason."""
        self.exit_reason = why

    @contextlib.asynccontextmanager
    async def streams(self, over: asyncio.Event) -> AsyncIterator[tuple[Any, Any]]:
        """Resolve the name and hand out the SDK's streams; ``over`` is not set here: HTTP does not report an end.

        Raises:
            Invalid: the URL or an address is not allowed.
            Transient: the name cannot be resolved.
        """
        from mcp.client.streamable_http import streamable_http_client

        logging.getLogger("mcp.client.streamable_http").setLevel(logging.ERROR)  # below, it logs session ids
        goal = target(self._server.url or "", allow_private=self._server.allow_private)
        addresses = await asyncio.to_thread(
            resolve_in_time,
            goal,
            Deadline(CONNECT_S),
            allow_private=self._server.allow_private,
            lookup=socket.getaddrinfo,
        )
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=32)
        inner = httpx2.AsyncHTTPTransport(trust_env=False, limits=limits)
        pinned = _Pinned(inner, goal, addresses[:MAX_DIALLED], self._silence_s)
        headers = {"User-Agent": f"Loom/{__version__}", "Accept-Encoding": "identity", **self._headers}
        client = httpx2.AsyncClient(transport=pinned, headers=headers, trust_env=False)
        url = goal.origin + goal.path
        async with client, streamable_http_client(url, http_client=client, max_sse_event_size=MAX_BODY_BYTES) as pair:
            yield pair


class _Pinned(httpx2.AsyncBaseTransport):
    """Sends everything to the addresses that were checked when the session began, and makes answers of failures."""

    def __init__(
        self, inner: httpx2.AsyncBaseTransport, goal: Target, addresses: tuple[str, ...], silence_s: float
    ) -> None:
        self._inner = inner
        self._goal = goal
        self._addresses = addresses
        self._silence_s = silence_s
        self._opened_s: deque[float] = deque(maxlen=_STREAMS)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            self._check(request)
            response = await self._send(request)
            return await _checked(request, response) if request.method == "POST" else response
        except (httpx2.TransportError, OSError) as error:
            if request.method != "POST":
                raise
            kind = REFUSED if isinstance(error, httpx2.UnsupportedProtocol) else UNREACHABLE
            return _error(request, kind, _why(error))

    async def aclose(self) -> None:
        await self._inner.aclose()

    def _check(self, request: httpx2.Request) -> None:
        port = request.url.port or {"http": 80, "https": 443}.get(request.url.scheme)
        if (request.url.scheme, request.url.host, port) != (self._goal.scheme, self._goal.host, self._goal.port):
            raise httpx2.UnsupportedProtocol("it leads to another host")
        if request.method == "GET":
            now_s = time.monotonic()
            if len(self._opened_s) == _STREAMS and now_s - self._opened_s[0] < _STREAMS_S:
                raise httpx2.ConnectError("it ends its stream of notifications again and again")
            self._opened_s.append(now_s)

    async def _send(self, request: httpx2.Request) -> httpx2.Response:
        failed: httpx2.TransportError | None = None
        for address in self._addresses:
            try:
                return await self._inner.handle_async_request(self._towards(address, request))
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                failed = error
        raise failed or httpx2.ConnectError("it has no address")

    def _towards(self, address: str, request: httpx2.Request) -> httpx2.Request:
        whole_s = _PARTING_S if request.method == "DELETE" else self._silence_s
        silence_s = None if request.method == "GET" else whole_s
        timeout = {"connect": min(CONNECT_S, whole_s), "read": silence_s, "write": whole_s, "pool": whole_s}
        extensions = {**request.extensions, "timeout": timeout, "sni_hostname": self._goal.host}
        return httpx2.Request(
            request.method,
            request.url.copy_with(host=address),
            headers=request.headers,  # Host is in them, with the name and not the address
            stream=request.stream,
            extensions=extensions,
        )


async def _checked(request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
    """The response, bounded and read if it is no stream; an error instead of one that is refused."""
    is_packed = response.headers.get("content-encoding", "identity").lower() != "identity"
    if is_packed and response.status_code < 400:
        await response.aclose()
        return _error(request, REFUSED, "it compresses its answers although it was asked not to")
    is_event_stream = response.headers.get("content-type", "").lower().startswith("text/event-stream")
    if response.status_code < 300 and is_event_stream:
        return httpx2.Response(
            response.status_code, headers=response.headers, stream=_Bounded(response), request=request
        )
    try:
        body = b"" if is_packed else b"".join([piece async for piece in _Bounded(response)])
    finally:
        await response.aclose()
    status = response.status_code
    if status >= 400:
        code, text = _reason(body)
        why = text if code else f"{_of_status(status)}: {text}" if text else _of_status(status)
        if status < 500 and "mcp-session-id" in request.headers:  # many servers answer 400 once they forgot it
            return _error(request, EXPIRED, why, code)
        if not code or is_event_stream:
            return _error(request, REFUSED, why, code)
    headers = [(name, text) for name, text in response.headers.multi_items() if name.lower() != "transfer-encoding"]
    return httpx2.Response(response.status_code, headers=headers, content=body, request=request)


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, response: httpx2.Response) -> None:
        self._response = response
        self._pieces = response.aiter_raw()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        room = MAX_BODY_BYTES
        async for piece in self._pieces:
            room -= len(piece)
            if room < 0:
                raise httpx2.ReadError(f"its answer is longer than {MAX_BODY_BYTES} bytes")
            yield piece

    async def aclose(self) -> None:
        """The SDK stops reading at the answer; what ends the stream comes right behind, and saves the connection."""
        with contextlib.suppress(TimeoutError, httpx2.HTTPError, RuntimeError, StopAsyncIteration):
            async with asyncio.timeout(_REST_S):
                await anext(self._pieces)
        await self._response.aclose()


def _reason(body: bytes) -> tuple[int, str]:
    """Code and text of an error of the protocol, also in an event stream; 0 and the text of any other body."""
    text = body.decode("utf-8", "replace").strip()
    for piece in (text, *(line.removeprefix("data:") for line in text.splitlines() if line.startswith("data:"))):
        with contextlib.suppress(ValueError, RecursionError):
            match json.loads(piece):
                case {"error": {"code": int(code), "message": str(said)}}:
                    return code, said
    return 0, "" if text.startswith("<") else plain(text, MAX_REASON_CHARS)


def _error(request: httpx2.Request, kind: str, text: str, code: int = 0) -> httpx2.Response:
    error = {"code": code or CODE, "message": text, "data": {"loom": kind}}
    return httpx2.Response(502, json={"jsonrpc": "2.0", "id": None, "error": error}, request=request)


def _of_status(status: int) -> str:
    known = {
        401: "it refuses us (HTTP 401): check the credentials in its headers",
        403: "it forbids us this (HTTP 403): check the rights of the credentials in its headers",
        404: "there is no such server at this URL (HTTP 404)",
        429: "it has too much to do (HTTP 429)",
    }
    return known.get(status, f"it answered with HTTP {status}")


def _why(error: Exception) -> str:
    if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
        return f"it cannot be reached: {error or 'no answer'}"
    if isinstance(error, httpx2.UnsupportedProtocol):
        return str(error)
    if isinstance(error, httpx2.TimeoutException):
        return "it fell silent"
    return f"the connection broke: {error or type(error).__name__}"
