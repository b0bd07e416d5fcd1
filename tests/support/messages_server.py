"""A real HTTP server on loopback that speaks the Messages API, streams included, and can be told to misbehave.

In a test::

    with MessagesServer(script=lambda body: Say("hello")) as server:
        ... Anthropic(base_url=server.url) ...
        assert server.requests[0]["model"] == "claude-test"

As a process, for benchmarks: ``python -m tests.support.messages_server --port 9000 [--latency-s 0.5]``.
"""

import argparse
import json
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol, Self

from tests.support import messages_rules
from tests.support.messages_wire import WireCall, answer, sse

Json = dict[str, Any]
SSE = "text/event-stream; charset=utf-8"


class Outgoing:
    """The server's end of one response; small replies leave in a single send."""

    def __init__(self, handler: BaseHTTPRequestHandler, stopping: threading.Event) -> None:
        self._handler = handler
        self.stopping = stopping

    def whole(self, status: int, content_type: str, body: bytes, headers: Mapping[str, str]) -> None:
        """A response of known length."""
        sized = {"content-type": content_type, "content-length": str(len(body)), **headers}
        self._send(_head(status, sized) + body)

    def stream(self, pieces: Sequence[bytes], *, headers: Mapping[str, str] | None = None) -> None:
        """A complete chunked response of status 200."""
        self._send(self._stream_head(headers) + b"".join(_chunk(piece) for piece in pieces) + b"0\r\n\r\n")

    def begin(self, headers: Mapping[str, str] | None = None) -> None:
        """The head of a chunked response; pieces follow."""
        self._send(self._stream_head(headers))

    def piece(self, data: bytes) -> None:
        """One chunk, sent at once."""
        self._send(_chunk(data))

    def end(self) -> None:
        """The last chunk: the response ends as it should."""
        self._send(b"0\r\n\r\n")

    def cut(self) -> None:
        """Close the connection in the middle of the response."""
        self._handler.close_connection = True

    def _stream_head(self, headers: Mapping[str, str] | None) -> bytes:
        return _head(200, {"content-type": SSE, "transfer-encoding": "chunked", **(headers or {})})

    def _send(self, data: bytes) -> None:
        self._handler.wfile.write(data)


def _head(status: int, headers: Mapping[str, str]) -> bytes:
    lines = [
        f"HTTP/1.1 {status} Status",
        "request-id: req_test",
        *(f"{name}: {text}" for name, text in headers.items()),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


class Behaviour(Protocol):
    """What the server does with one request."""

    def send(self, out: Outgoing) -> None:
        """Write the response."""


@dataclass(frozen=True)
class Say:
    """A complete reply, streamed a word at a time."""

    text: str = ""
    calls: Sequence[WireCall] = ()
    stop_reason: str | None = None
    model: str = "claude-test"
    usage: Json | None = None

    def send(self, out: Outgoing) -> None:
        events = answer(self.text, self.calls, stop_reason=self.stop_reason, model=self.model, usage=self.usage)
        out.stream([sse(events)])


@dataclass(frozen=True)
class Stream:
    """A body of your own with status 200 and the content type of a stream, whole and properly ended."""

    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    def send(self, out: Outgoing) -> None:
        out.stream([self.body], headers=self.headers)


def events(*each: Json | list[Json]) -> Stream:
    """A stream of these events; lists are laid flat."""
    return Stream(sse(event for one in each for event in (one if isinstance(one, list) else [one])))


@dataclass(frozen=True)
class Plain:
    """A response that is no stream: any status, headers and body."""

    status: int
    body: bytes
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)

    def send(self, out: Outgoing) -> None:
        out.whole(self.status, self.content_type, self.body, self.headers)


def failure(status: int, kind: str, message: str = "refused", headers: Mapping[str, str] | None = None) -> Plain:
    """An error in the API's own shape."""
    body = {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_test"}
    return Plain(status, json.dumps(body).encode(), headers=headers or {})


@dataclass(frozen=True)
class Cut:
    """The first bytes of a body; then the connection is closed, or (is_clean) the response ends as if whole."""

    body: bytes
    after_bytes: int
    is_clean: bool = False

    def send(self, out: Outgoing) -> None:
        out.begin()
        out.piece(self.body[: self.after_bytes])
        if self.is_clean:
            out.end()
        else:
            out.cut()


@dataclass(frozen=True)
class Hang:
    """Send this much of a body (None: not even the head), then nothing until released; then the rest."""

    release: threading.Event
    body: bytes = field(default_factory=lambda: sse(answer("late")))
    after_bytes: int | None = None

    def send(self, out: Outgoing) -> None:
        if self.after_bytes is not None:
            out.begin()
            out.piece(self.body[: self.after_bytes])
        while not self.release.wait(0.02) and not out.stopping.is_set():
            continue
        if self.after_bytes is None:
            out.begin()
        out.piece(self.body[self.after_bytes or 0 :])
        out.end()


@dataclass(frozen=True)
class Drip:
    """A byte at a time, one every ``every_s``; what is left goes at once when released."""

    release: threading.Event
    body: bytes
    every_s: float = 0.01

    def send(self, out: Outgoing) -> None:
        out.begin()
        sent = 0
        while sent < len(self.body) and not self.release.wait(self.every_s) and not out.stopping.is_set():
            out.piece(self.body[sent : sent + 1])
            sent += 1
        out.piece(self.body[sent:])
        out.end()


@dataclass(frozen=True)
class Pings:
    """Nothing but pings, one every ``every_s``, until released; then the stream ends without an answer."""

    release: threading.Event
    every_s: float = 0.01

    def send(self, out: Outgoing) -> None:
        out.begin()
        while not self.release.wait(self.every_s) and not out.stopping.is_set():
            out.piece(sse([{"type": "ping"}]))
        out.end()


def echo(body: Json) -> Behaviour:
    """The default: ``echo: `` and the last text of the user."""
    texts = [
        block["text"]
        for message in body["messages"]
        if message["role"] == "user"
        for block in messages_rules.blocks(message["content"])
        if block["type"] == "text"
    ]
    text = "echo: " + (texts[-1] if texts else "")
    usage = {"input_tokens": sum(len(each) for each in texts) // 4 + 1, "output_tokens": len(text) // 4 + 1}
    return Say(text, model=body["model"], usage=usage)


def _counted(behaviour: Behaviour, tokens: int | None) -> Behaviour:
    if tokens is None or not isinstance(behaviour, Say) or behaviour.usage is not None:
        return behaviour
    return replace(behaviour, usage={"input_tokens": tokens, "output_tokens": len(behaviour.text) // 4 + 1})


class MessagesServer:
    """The server, for ``with``: by a script, a queue of behaviours (then the script), or the echo.

    Requests that the real API refuses are answered 400 before the script is asked; ``is_strict=False`` leaves that out.
    ``count`` gives a request's input tokens: what replies report that name no usage, and, above ``window_tokens``, what
    a refusal names. ``keeps``: so many of the latest requests are remembered, unless set all.
    """

    def __init__(
        self,
        behaviours: Iterable[Behaviour] = (),
        *,
        script: Callable[[Json], Behaviour] = echo,
        port: int = 0,
        latency_s: float = 0.0,
        is_strict: bool = True,
        count: Callable[[Json], int] | None = None,
        window_tokens: int | None = None,
        keeps: int | None = None,
    ) -> None:
        self._queue = deque(behaviours)
        self._script = script
        self._latency_s = latency_s
        self._is_strict = is_strict
        self._count = count
        self._window_tokens = window_tokens
        self._lock = threading.Lock()
        self._requests: deque[Json] = deque(maxlen=keeps)
        self._headers: deque[dict[str, str]] = deque(maxlen=keeps)
        self.stopping = threading.Event()
        self._http = _Http(port, self)

    @property
    def url(self) -> str:
        """What a client takes as its base URL."""
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    @property
    def requests(self) -> list[Json]:
        """The bodies so far, in order of arrival (a copy)."""
        with self._lock:
            return list(self._requests)

    @property
    def headers(self) -> list[dict[str, str]]:
        """The headers of each request, names in lower case (a copy)."""
        with self._lock:
            return list(self._headers)

    @property
    def connections(self) -> int:
        """How many connections clients have opened so far."""
        return self._http.accepted

    def then(self, *behaviours: Behaviour) -> None:
        """Queue more behaviours."""
        with self._lock:
            self._queue.extend(behaviours)

    def forget(self) -> None:
        """Drop what is still queued."""
        with self._lock:
            self._queue.clear()

    def __enter__(self) -> Self:
        threading.Thread(target=self._http.serve_forever, args=(0.005,), daemon=True, name="messages-server").start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self._http.shutdown()
        self._http.server_close()
        self._http.hang_up()

    def serve(self) -> None:
        """Serve in this thread until interrupted."""
        self._http.serve_forever()

    def _behave(self, body: Json, headers: dict[str, str]) -> Behaviour:
        with self._lock:
            self._requests.append(body)
            self._headers.append(headers)
            tokens = self._count(body) if self._count else None
            if refused := self._complaint(body, tokens):
                return failure(400, "invalid_request_error", refused)
            queued = self._queue.popleft() if self._queue else None
        return _counted(queued or self._script(body), tokens)

    def _complaint(self, body: Json, tokens: int | None) -> str | None:
        if tokens is not None and self._window_tokens is not None and tokens > self._window_tokens:
            return f"prompt is too long: {tokens} tokens > {self._window_tokens} maximum"
        return messages_rules.complaint(body) if self._is_strict else None

    def answer(self, path: str, body: Json, headers: dict[str, str], out: Outgoing) -> None:
        """Serve one request, on its connection's thread."""
        if path.split("?")[0] != "/v1/messages":
            failure(404, "not_found_error", "no such path").send(out)
            return
        if self._latency_s:
            self.stopping.wait(self._latency_s)
        self._behave(body, headers).send(out)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: "_Http"

    def do_POST(self) -> None:  # the name that http.server calls
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        headers = {name.lower(): text for name, text in self.headers.items()}
        self.server.owner.answer(self.path, body, headers, Outgoing(self, self.server.owner.stopping))

    def log_message(self, *_: object) -> None:
        """No access log."""


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 1024

    def __init__(self, port: int, owner: MessagesServer) -> None:
        self.owner = owner
        self.accepted = 0
        self._sockets: set[socket.socket] = set()
        super().__init__(("127.0.0.1", port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.accepted += 1
        self._sockets.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._sockets.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hung up is no error of ours."""

    def hang_up(self) -> None:
        """Close what clients keep open, so that none waits for a server that is gone."""
        for each in list(self._sockets):
            self.shutdown_request(each)


def main() -> None:
    """Serve the echo until interrupted, for benchmarks."""
    parser = argparse.ArgumentParser(description="A Messages API on loopback that echoes the last user text.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--latency-s", type=float, default=0.0)
    given = parser.parse_args()
    server = MessagesServer(port=given.port, latency_s=given.latency_s)
    print(server.url, flush=True)  # noqa: T201  # the caller reads the URL
    server.serve()


if __name__ == "__main__":
    main()
