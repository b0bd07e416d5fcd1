"""A client's connection: uvicorn's protocol, which reads heads with httptools, with bounds and refusals of our own."""

import asyncio
import io
import re
import socket
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from web.connections import Connections, Stage, Tracked
from web.detached import AHEAD_BYTES, Exchange
from web.http_request import HELD_BYTES, BodyStream, Framing, bad_request, environ_of, refusal
from web.problems import ProblemDetails, Refused
from web.request_threads import RequestThreads

MAX_HEAD_BYTES = 64 * 1024
LINGER_BYTES = 64 * 1024 * 1024
"""So much of what a refused client still sends is thrown away, or a reset would take the answer from it."""
_READ = memoryview(bytearray(16 * 1024))
"""All connections are read into it, so that one that waits holds little."""
_LINE = re.compile(rb"[^ \r\n]+ [^ \r\n]+ HTTP/1\.[01]\r\n")
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


@dataclass(eq=False)
class Served(ServerState):
    """What all connections of a server share."""

    known: Connections
    threads: RequestThreads
    max_body_bytes: int
    streams: Callable[[str, str, bool], int]
    """The most bytes of a body that a view, by method and path, reads while it comes in; 0: it does not. True: the body
    is over max_body_bytes, or of unknown length."""

    def __post_init__(self) -> None:
        """Begin with uvicorn's own."""
        super().__init__()


class HttpConnection(HttpToolsProtocol, asyncio.BufferedProtocol, Tracked):
    """Reads one request, has it answered, and reads the next one."""

    server_state: Served

    def __init__(self, config: Any, server_state: Served, app_state: dict[str, Any], _loop: Any = None) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.threads = server_state.threads
        self.wsgi_app: Any = self.app
        self._rest, self._head = b"", bytearray()
        self._line: tuple[bytes, str, bool] | None = None  # method, version and whether the connection stays open
        self._exchange: Exchange | None = None
        self._framing: Framing | None = None
        self._body: BodyStream | None = None
        self._is_refused = self._has_left = self._is_streamed = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Take the connection, or the place of one that is missed less."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=AHEAD_BYTES - 1)  # with AHEAD_BYTES, ``taken`` waits
        state, address = self.server_state, self.client[0] if self.client else ""
        is_over, idlest = state.known.over_limit(address)
        if is_over:
            state.known.drop(idlest or self, "too many connections")
        if not transport.is_closing():
            state.known.add(self, address, time.monotonic())

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell who reads and who waits."""
        super().connection_lost(exc)
        self.server_state.known.remove(self)
        if self._body is not None:
            self._body.give(None)
        self._leave()

    def get_buffer(self, _: int) -> memoryview:
        """Where asyncio reads into."""
        return _READ

    def buffer_updated(self, nbytes: int) -> None:
        """Take what was read."""
        self._rest += bytes(_READ[:nbytes])
        self._read()

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio asks whether the connection stays open
        """The client says no more; it still gets its answer."""
        self._leave()
        return self._exchange is not None and self._framing is None

    def resume_writing(self) -> None:
        """The client has taken what was written."""
        super().resume_writing()
        self._read()

    def shutdown(self) -> None:
        """The server stops: what was written is sent, and what runs is cut off."""
        self.transport.close()

    def on_message_begin(self) -> None:
        """Forget the request before."""
        self.url, self.headers = b"", []

    def on_headers_complete(self) -> None:
        """Keep what the parser knows only now."""
        self._line = self.parser.get_method(), self.parser.get_http_version(), self.parser.should_keep_alive()

    def on_message_complete(self) -> None:
        """Nothing: bodies are read here, as the parser takes extensions of chunks and leading zeros."""

    @property
    def unsent_bytes(self) -> int:
        """Bytes of answers that the client has not taken yet."""
        return self.transport.get_write_buffer_size()

    def write(self, data: bytes) -> None:
        """Send a piece of an answer; nothing happens once the client has gone."""
        if data and not self.transport.is_closing():
            self.written_bytes += len(data)
            self.transport.write(data)

    def end(self, data: bytes, *, is_last: bool) -> None:
        """Send the end of an answer, and read the next request."""
        self.write(data)
        if is_last or self._has_left or self._framing is not None:
            self.transport.close()
        self._exchange = self._body = None
        self._read()

    def abort(self) -> None:
        """Close the connection at once; what was not taken is lost."""
        if self.unsent_bytes:
            # Or the system would keep what lies in its buffer, and try for minutes to get rid of it.
            linger = struct.pack("ii", 1, 0)
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.transport.abort()

    def _stage(self) -> Stage:
        if self._exchange is not None and (self._framing is None or self.flow.read_paused):
            return Stage.RUNNING
        if self._exchange is not None or self._is_refused:
            return Stage.BODY
        if self.unsent_bytes:
            return Stage.ANSWER
        return Stage.HEAD if self._head else Stage.IDLE

    def _leave(self) -> None:
        self._has_left = True
        if self._exchange is not None:
            self._exchange.leave()

    def _must_wait(self) -> bool:
        """True until an answer has ended or was taken, or a view has read of its body."""
        if self._exchange is None:
            return self.flow.write_paused and not self._is_refused
        is_held = self._body is not None and self._is_streamed and self._body.unread_bytes > HELD_BYTES
        return self._framing is None or is_held

    def _read(self) -> None:
        try:
            while self._rest and not self.transport.is_closing() and not self._must_wait():
                self._read_piece()
        except Refused as error:
            self._refuse(error.problem)
        if len(self._rest) >= len(_READ):  # with less it is read on, or nobody would see that the client leaves
            self.flow.pause_reading()
        else:
            self.flow.resume_reading()
        late = self.server_state.known.move(self, self._stage(), time.monotonic())
        self.server_state.known.drop(late, "too many uploads")

    def _read_piece(self) -> None:
        if self._framing is not None:
            self._read_body(self._framing)
        elif not self._is_refused:
            self._read_head()
        else:
            self.received_bytes += len(self._rest)
            self._rest = b""
            if self.received_bytes > LINGER_BYTES:
                self.abort()

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
        if self._line is not None:
            self._begin(*self._line)

    def _begin(self, method: bytes, version: str, is_kept: bool) -> None:
        """A head is complete: read its body, and serve it."""
        if not _LINE.match(self._head):  # the parser takes RTSP/1.0 and two spaces
            raise bad_request("The first line is not a method, a target and HTTP/1.0 or HTTP/1.1")
        environ = environ_of(method, self.url, version, self.headers)
        length = None if environ.pop("HTTP_TRANSFER_ENCODING", None) else int(environ.get("CONTENT_LENGTH", 0))
        is_large = length is None or length > self.server_state.max_body_bytes
        most_bytes = self.server_state.streams(environ["REQUEST_METHOD"], environ["PATH_INFO"], is_large)
        self._is_streamed = most_bytes > 0 and (length is None or length <= most_bytes)
        if length is not None and is_large and not self._is_streamed:
            raise self._too_large(most_bytes)
        self._framing, self._body, self.received_bytes = Framing(length), BodyStream(self._read_on), 0
        (host, port), (_, own_port) = self.client or ("", 0), self.server or ("", 0)
        environ |= {"REMOTE_ADDR": host, "REMOTE_PORT": str(port), "SERVER_PORT": str(own_port)}
        environ |= {**_WSGI, "wsgi.input": io.BufferedReader(self._body)}
        self._exchange = Exchange(self, environ, is_last=not is_kept or version == "1.0")
        if self._framing.is_whole:
            self._end_body()
        elif environ.pop("HTTP_EXPECT", "").lower() == "100-continue" and version == "1.1" and not self._rest:
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if self._is_streamed:
            self._serve()

    def _read_body(self, framing: Framing) -> None:
        piece, self._rest = framing.cut(self._rest)
        self.received_bytes += len(piece)
        declared_bytes = self.received_bytes + framing.left_bytes
        if declared_bytes > self.server_state.max_body_bytes and not self._is_streamed:
            raise self._too_large()
        if piece and self._body is not None:
            self._body.give(piece)
        if framing.is_whole:
            self._end_body()

    def _end_body(self) -> None:
        self._framing = None
        if self._body is not None:
            self._body.give(b"")
        if self._exchange is not None and not self._is_streamed:
            self._exchange.environ["CONTENT_LENGTH"] = str(self.received_bytes)
            self._serve()

    def _serve(self) -> None:
        self._head, self._line = bytearray(), None
        if self._exchange is not None:
            self.threads.run(self._exchange.serve)

    def _read_on(self) -> None:
        if self._is_streamed:
            self.threads.hand_over(self._read)

    def _too_large(self, most_bytes: int = 0) -> Refused:
        detail = f"The body has more than {most_bytes or self.server_state.max_body_bytes} bytes"
        return Refused(ProblemDetails(413, "request-entity-too-large", detail))

    def _refuse(self, problem: ProblemDetails) -> None:
        """Answer as the server itself, and throw away what follows."""
        if self._exchange is not None and self._is_streamed:
            self.abort()  # its view runs, and may have begun to answer
            return
        self._exchange = self._framing = self._body = None
        self._is_refused, self.received_bytes = True, 0
        plain = {"SERVER_PROTOCOL": "HTTP/1.1", "REQUEST_METHOD": "GET"}
        Exchange(self, plain, is_last=True).answer(refusal(problem, bytes(self._head)))
        self._rest, self._head = b"", bytearray()
        self.transport.write_eof()
