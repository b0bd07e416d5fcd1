"""A real HTTP server on loopback that keeps what it receives and answers as it is told.

    with WebhookReceiver() as receiver:
        receiver.answer_with(Answer(status=503), Answer(status=200))
        ...  # whatever posts to receiver.url
        first, second = receiver.wait_for(2, timeout_s=60)

Answers are used in order, the last one for all that follow; without any it is an empty 200.
"""

import contextlib
import random
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Literal, Self

DRIP_PAUSE_S = 0.02
"""Between two bytes of an answer that drips."""
OWN_PORTS = range(10_000, 32_768)
"""Linux gives others to whoever connects, or asks for any port (ip_local_port_range)."""


@dataclass(frozen=True)
class Received:
    """A request, as it came over the wire."""

    method: str
    path: str
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes
    at_s: float
    """Seconds since 1970 when it was complete."""


@dataclass(frozen=True)
class Answer:
    """What one request is answered with."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    hold: threading.Event | None = None
    """The answer waits until it is set; closing the receiver sets it."""
    drip: Literal["headers", "body"] | None = None
    """Send that part byte by byte, without end."""
    raw: bytes | None = None
    """Sent in place of everything else: b"" closes the connection without an answer."""


class WebhookReceiver:
    """Listens from ``with`` on, on a port of its own."""

    def __init__(self, *, tls: ssl.SSLContext | None = None) -> None:
        self._changed = threading.Condition()
        self._received: list[Received] = []
        self._answers: deque[Answer] = deque([Answer()])
        self._holds: list[threading.Event] = []
        self._closing = threading.Event()
        self._server = _Server(self._take, self._closing, tls)
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, name="webhook-receiver", daemon=True
        )
        self._scheme = "http" if tls is None else "https"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        for hold in self._holds:
            hold.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.port}/hook"

    @property
    def received(self) -> tuple[Received, ...]:
        """All requests so far, in the order they were complete."""
        with self._changed:
            return tuple(self._received)

    def answer_with(self, *answers: Answer) -> None:
        """Set the answers from the next request on."""
        with self._changed:
            self._answers = deque(answers)
            self._holds += [answer.hold for answer in answers if answer.hold is not None]

    def wait_for(self, n: int, *, timeout_s: float) -> tuple[Received, ...]:
        """Return all requests as soon as there are n; AssertionError if there are fewer at the timeout."""
        with self._changed:
            is_enough = self._changed.wait_for(lambda: len(self._received) >= n, timeout_s)
            assert is_enough, f"{len(self._received)} of {n} requests after {timeout_s} s"
            return tuple(self._received)

    def _take(self, request: Received) -> Answer:
        with self._changed:
            self._received.append(request)
            self._changed.notify_all()
            return self._answers.popleft() if len(self._answers) > 1 else self._answers[0]


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # server_close joins them: no thread outlives its test
    request_queue_size = 128

    def __init__(
        self, take: Callable[[Received], Answer], closing: threading.Event, tls: ssl.SSLContext | None
    ) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.take = take
        self.closing = closing
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep quiet about senders that hang up; that is what some tests make them do."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        answer = self.server.take(Received(self.command, self.path, headers, body, time.time()))
        if answer.hold is not None:
            answer.hold.wait()
        with contextlib.suppress(ConnectionError):
            self._reply(answer)

    do_GET = do_POST  # noqa: N815  # http.server finds its methods by these names

    def _reply(self, answer: Answer) -> None:
        if answer.raw is not None:
            self.wfile.write(answer.raw)
            return
        if answer.drip == "headers":
            self.wfile.write(f"HTTP/1.1 {answer.status} Slow\r\nX-Slow: ".encode())
            self._drip()
            return
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if answer.drip is None and "Content-Length" not in answer.headers:
            self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)
        if answer.drip == "body":
            self._drip()

    def _drip(self) -> None:
        while not self.server.closing.wait(DRIP_PAUSE_S):
            self.wfile.write(b".")

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def unused_port() -> int:
    """A port on loopback at which nothing listens, and that nobody else is given until a process of the test does."""
    while True:
        port = random.SystemRandom().choice(OWN_PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
