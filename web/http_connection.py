"""A client's connection: uvicorn's protocol, which reads heads with httptools, with bounds and refusals of our own."""

import asyncio
import io
import re
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import httptools
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from web.connections import Connections, Stage
from web.detached import AHEAD_BYTES
from web.http_body import HELD_BYTES, Body, BodyStream
from web.http_exchange import HttpExchange
from web.http_head import bad_request, environ_of, refusal
from web.problems import ProblemDetails, Refused
from web.request_threads import RequestThreads

MAX_HEAD_BYTES = 64 * 1024
LINGER_BYTES = 64 * 1024 * 1024
"""So much of what a refused client still sends is thrown away, or a reset would take the answer from it."""
STREAMED_BYTES = 1024 * 1024
"""A body that is streamed has the deadline of a whole one for each so many bytes."""
_READ = memoryview(bytearray(16 * 1024))
"""All connections are read into it, so that one that waits holds little."""
_LONG = re.compile(rb"\r\ncontent-length:[ \t]*[1-9][0-9]{19}", re.IGNORECASE)
_WSGI = {
    "wsgi.version": (1, 0),
    "wsgi.url_scheme": "http",
    "wsgi.errors": sys.stderr,
    "wsgi.input_terminated": True,
    "wsgi.multithread": True,
    "wsgi.multiprocess": False,
    "wsgi.run_once": False,
    "SERVER_NAME": "loom",
}


class Served(ServerState):
    """What all connections of a server share.

    Args:
        streams: whether the body of a request, by method and path, is read by its view while it comes in.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connections: Connections,
        threads: RequestThreads,
        *,
        max_body_bytes: int,
        streams: Callable[[str, str], bool],
    ) -> None:
        super().__init__()
        self.loop, self.known, self.threads = loop, connections, threads
        self.max_body_bytes, self.streams = max_body_bytes, streams
        self.running: set[asyncio.Future[None]] = set()
        self.dropped: dict[str, int] = {}
        self._calls: deque[Callable[[], object]] = deque()
        self._is_woken = False

    def drop(self, connection: Any, why: str) -> None:
        """Cut a connection off; None: nothing happens."""
        if connection is not None:
            self.dropped[why] = self.dropped.get(why, 0) + 1
            self.known.remove(connection)
            connection.abort()

    def hand_over(self, call: Callable[[], object]) -> None:
        """Have the loop's thread call something; for any thread. Calls that come together wake it once."""
        self._calls.append(call)
        if not self._is_woken:
            self._is_woken = True
            with suppress(RuntimeError):  # the loop has ended
                self.loop.call_soon_threadsafe(self._call_all)

    def _call_all(self) -> None:
        self._is_woken = False  # first: what is added from here on wakes it again
        while self._calls:
            self.loop.call_soon(self._calls.popleft())


class HttpConnection(HttpToolsProtocol, asyncio.BufferedProtocol):
    """Reads one request, has it answered, and reads the next one."""

    server_state: Served

    def __init__(self, config: Config, server_state: Served, app_state: dict[str, Any], _loop: Any = None) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.wsgi_app: Any = self.app
        self.threads, self.hand_over = server_state.threads, server_state.hand_over
        self.received_bytes = self.written_bytes = self.taken_bytes = self._taken_before = 0
        self.taken_s = 0.0
        self.waits_since_s: float | None = None
        self._rest, self._head, self._version = b"", bytearray(), ""
        self._exchange: HttpExchange | None = None
        self._body: Body | None = None
        self._whole = bytearray()
        self._stream: BodyStream | None = None
        self._is_head_over = self._keeps_alive = self._is_refused = self._has_left = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=AHEAD_BYTES)
        known, address = self.server_state.known, self.client[0] if self.client else ""
        is_over, idlest = known.over_limit(address)
        self.server_state.drop((idlest or self) if is_over else None, "too many connections")
        if not transport.is_closing():
            known.add(self, address, time.monotonic())

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.server_state.known.remove(self)
        if self._stream is not None:
            self._stream.give(None)
        self._leave()

    def get_buffer(self, _: int) -> memoryview:
        return _READ

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(_READ[:nbytes]))

    def data_received(self, data: bytes) -> None:
        self._rest += data
        self._read()

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio asks whether the connection stays open
        self._leave()
        return self._exchange is not None and self._body is None

    def resume_writing(self) -> None:
        super().resume_writing()
        self._read()

    def shutdown(self) -> None:
        """The server stops: what was written is sent, and what runs is cut off."""
        self.transport.close()

    def on_message_begin(self) -> None:
        self.url, self.headers = b"", []

    def on_headers_complete(self) -> None:
        self._is_head_over = True
        self._version, self._keeps_alive = self.parser.get_http_version(), self.parser.should_keep_alive()

    def on_message_complete(self) -> None:
        """Nothing: bodies are read here, as the parser takes extensions of chunks and leading zeros."""

    @property
    def unsent_bytes(self) -> int:
        """Bytes of answers that the client has not taken yet."""
        return self.transport.get_write_buffer_size()

    @property
    def own_headers(self) -> list[tuple[str, str]]:
        """Headers of every answer: its date."""
        return [(name.decode().title(), value.decode()) for name, value in self.server_state.default_headers]

    def write(self, data: bytes) -> None:
        """Send a piece of an answer; nothing happens once the client has gone."""
        if data and not self.transport.is_closing():
            self.written_bytes += len(data)
            self.transport.write(data)

    def keep(self, running: asyncio.Future[None]) -> None:
        """Hold a coroutine, which the loop alone would let go."""
        self.server_state.running.add(running)
        running.add_done_callback(self.server_state.running.discard)

    def end(self, data: bytes) -> None:
        """Send the end of an answer, and read the next request."""
        self.write(data)
        if self._has_left or self._body is not None or (self._exchange is not None and self._exchange.is_last):
            self.transport.close()
        self._exchange = self._stream = None
        self._read()

    def abort(self) -> None:
        """Close the connection at once; what was not taken is lost."""
        if self.unsent_bytes:
            # Or the system would keep what lies in its buffer, and try for minutes to get rid of it.
            linger = struct.pack("ii", 1, 0)
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.transport.abort()

    def review(self) -> None:
        """Book what the connection does now."""
        late = self.server_state.known.move(self, self._stage(), time.monotonic())
        self.server_state.drop(late, "too many uploads")

    def look(self, now_s: float) -> None:
        """Note how much of its answers the client has taken; once a second."""
        taken_bytes = self.written_bytes - self.unsent_bytes
        if not self.unsent_bytes:
            self.waits_since_s = None
            self.review()
        elif self.waits_since_s is None:
            self.waits_since_s = self.taken_s = now_s
            self.taken_bytes, self._taken_before = 0, taken_bytes
        elif taken_bytes - self._taken_before > self.taken_bytes:
            self.taken_bytes, self.taken_s = taken_bytes - self._taken_before, now_s

    def _leave(self) -> None:
        self._has_left = True
        if self._exchange is not None:
            self._exchange.leave()

    def _stage(self) -> Stage:
        if self._exchange is not None and (self._body is None or self.flow.read_paused):
            return Stage.RUNNING
        if self._exchange is not None or self._is_refused:
            return Stage.BODY
        if self.unsent_bytes:
            return Stage.ANSWER
        return Stage.HEAD if self._head else Stage.IDLE

    def _read(self) -> None:
        try:
            while self._rest and not self.transport.is_closing() and self._read_piece():
                pass
        except Refused as error:
            self._refuse(error.problem)
        if self._rest and not self._is_refused:
            self.flow.pause_reading()
        else:
            self.flow.resume_reading()
        self.review()

    def _read_piece(self) -> bool:
        """Read on; False if that must wait for an answer to end or to be taken, or for a view to read."""
        if self._is_refused:
            self.received_bytes += len(self._rest)
            self._rest = b""
            if self.received_bytes > LINGER_BYTES:
                self.abort()
        elif self._exchange is None and not self.flow.write_paused:
            self._read_head()
        elif self._body is not None and (self._stream is None or self._stream.unread_bytes < HELD_BYTES):
            self._read_body(self._body)
        else:
            return False
        return True

    def _read_head(self) -> None:
        if not self._head:
            self._rest = self._rest.lstrip(b"\r\n")
            self.parser = httptools.HttpRequestParser(self)  # a new one, as it is never told of a body
        before = bytes(self._head[-3:])
        end = (before + self._rest).find(b"\r\n\r\n")
        cut = len(self._rest) if end < 0 else end + 4 - len(before)
        piece, self._rest = self._rest[:cut], self._rest[cut:]
        self._head += piece
        if len(self._head) > MAX_HEAD_BYTES:
            detail = f"The head has more than {MAX_HEAD_BYTES} bytes"
            raise Refused(ProblemDetails(431, "request-header-fields-too-large", detail))
        try:
            with suppress(httptools.HttpParserUpgrade):  # which is never granted, as RFC 9110, 7.8, allows
                self.parser.feed_data(piece)
        except httptools.HttpParserInvalidURLError as error:
            raise bad_request("Bad URI") from error
        except httptools.HttpParserError as error:
            raise self._too_large() if _LONG.search(self._head) else bad_request(str(error)) from error
        if self._is_head_over:
            self._begin(environ_of(self.parser.get_method(), self.url, self._version, self.headers))

    def _begin(self, environ: dict[str, Any]) -> None:
        """A head is complete: read its body, and serve it."""
        is_chunked = environ.pop("HTTP_TRANSFER_ENCODING", None) is not None
        length = None if is_chunked else int(environ.get("CONTENT_LENGTH", 0))
        is_streamed = self.server_state.streams(environ["REQUEST_METHOD"], environ["PATH_INFO"])
        if not is_streamed and length is not None and length > self.server_state.max_body_bytes:
            raise self._too_large()
        (host, port), (_, own_port) = self.client or ("", 0), self.server or ("", 0)
        environ |= _WSGI | {"REMOTE_ADDR": host, "REMOTE_PORT": str(port), "SERVER_PORT": str(own_port)}
        expects = environ.pop("HTTP_EXPECT", "").lower() == "100-continue" and self._version == "1.1"
        self._exchange = HttpExchange(self, environ, is_last=not self._keeps_alive)
        self._body, self._whole, self.received_bytes = Body(length), bytearray(), 0
        if expects and not self._rest and not self._body.is_whole:
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if is_streamed and not self._body.is_whole:
            self._stream = BodyStream(self._read_on)
            self._serve(io.BufferedReader(self._stream))
        elif self._body.is_whole:
            self._end_body()

    def _read_body(self, body: Body) -> None:
        piece, self._rest = body.take(self._rest)
        self.received_bytes += len(piece)
        if self._stream is None:
            self._whole += piece
            if len(self._whole) > self.server_state.max_body_bytes:
                raise self._too_large()
        elif piece:
            self._stream.give(piece)
            if self.received_bytes > STREAMED_BYTES:
                self.received_bytes = 0
                self.server_state.known.move(self, Stage.RUNNING, time.monotonic())
        if body.is_whole:
            self._end_body()

    def _end_body(self) -> None:
        self._body = None
        if self._stream is not None:
            self._stream.give(b"")
        elif self._exchange is not None:
            self._exchange.environ["CONTENT_LENGTH"] = str(len(self._whole))
            self._serve(io.BytesIO(self._whole))

    def _serve(self, body: io.IOBase) -> None:
        self._head, self._whole, self._is_head_over = bytearray(), bytearray(), False
        if self._exchange is not None:
            self._exchange.environ["wsgi.input"] = body
            self.threads.run(self._exchange.serve)

    def _read_on(self) -> None:
        if self.flow.read_paused:
            self.hand_over(self._read)

    def _too_large(self) -> Refused:
        detail = f"The body has more than {self.server_state.max_body_bytes} bytes"
        return Refused(ProblemDetails(413, "request-entity-too-large", detail))

    def _refuse(self, problem: ProblemDetails) -> None:
        """Answer as the server itself, and throw away what follows."""
        if self._stream is not None:
            self.abort()  # its view runs, and may have begun to answer
            return
        self._exchange = self._body = None
        self._is_refused, self.received_bytes = True, 0
        plain = {"SERVER_PROTOCOL": "HTTP/1.1", "REQUEST_METHOD": "GET"}
        HttpExchange(self, plain, is_last=True).answer(refusal(problem, bytes(self._head)))
        self._rest, self._head, self._whole = b"", bytearray(), bytearray()
        self.transport.write_eof()
