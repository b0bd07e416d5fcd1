"""A connection: what waitress answers by itself is problem+json, like the rest."""

import socket
import threading
import time
from typing import Any, cast
from urllib.parse import quote

from waitress.channel import HTTPChannel
from waitress.task import ErrorTask
from werkzeug.datastructures import Headers

from web.answers import encode
from web.caller import request_id_of, traceparent_of
from web.connections import Stage
from web.detached import Detached, HttpTask
from web.parser import RequestParser
from web.problems import MEDIA_TYPE, ProblemDetails

_LONGEST_TARGET = 1000
"""Characters of a refused request's path that its answer repeats."""


class HttpChannel(HTTPChannel):  # type: ignore[misc]  # waitress has no types
    """A connection with our own limits and errors, which reports to the loop."""

    parser_class = RequestParser
    wanted = 0
    """Of selectors' EVENT_*: what the loop waits for; the loop's own."""
    taken_bytes = 0
    taken_s = 0.0
    waits_since_s: float | None = None
    is_parked = False
    """True while the request that runs has no thread."""
    _parked: HttpTask | None = None
    _is_watched = False

    def park(self, task: HttpTask) -> None:
        """The request that runs leaves its thread; its task goes on with it."""
        self._parked, self.is_parked, self._is_watched = task, True, True

    def unpark(self) -> None:
        """A thread is to go on with the request that left its own."""
        self.is_parked = False
        self.server.note(self)
        self.server.add_task(self)

    def task_class(self, made: Any, request: Any) -> HttpTask:
        """What serves a request; the same task again if it was parked."""
        self._parked = None
        request.task = request.task or HttpTask(made, request)
        return cast(HttpTask, request.task)

    def service(self) -> None:
        """Serve a request, or go on with one; for a thread of the pool."""
        request = self.requests[0]
        try:
            super().service()
        except Detached:
            return
        finally:
            self.server.note(self)
        # Another thread may serve the connection's next request by now.
        if request.task is not None and request.task.continuation is not None:
            request.task.continuation.close()

    def write_soon(self, data: bytes) -> int:
        """Send bytes, and have the loop send what is left of them."""
        count: int = super().write_soon(data)
        if self.total_outbufs_len or self.will_close or self.waits_since_s is not None:
            self.server.note(self)
        return count

    def _flush_outbufs_below_high_watermark(self) -> None:
        if self.total_outbufs_len > self.adj.outbuf_high_watermark:
            self.server.note(self)  # it waits until the loop has sent something
        super()._flush_outbufs_below_high_watermark()

    def readable(self) -> bool:
        """Whether the loop is to look for bytes; of a parked request, for the client's end."""
        return self._is_watched if self.is_parked else bool(super().readable())

    def handle_read(self) -> None:
        """Take bytes; while a request is parked they stay where they are, and only the client's end is noticed."""
        if not self.is_parked:
            super().handle_read()
            return
        self._is_watched = False  # a further request waits here, or nothing more comes
        if has_left(self.socket):
            self._leave()

    def handle_write(self) -> None:
        """Send what waits, and say so to a parked request."""
        super().handle_write()
        if (parked := self._parked) is not None and parked.continuation is not None:
            parked.continuation.resume()

    def stage(self) -> Stage:
        """What it does now; for the loop, after anything happened."""
        with self.requests_lock:  # A thread that ends a request changes all of this under it.
            is_running = bool(self.requests)
        self._note_waiting()
        if is_running:
            return Stage.RUNNING
        if self.writable():
            return Stage.ANSWER
        if self.request is None:
            return Stage.IDLE
        return Stage.BODY if self.request.headers_finished else Stage.HEAD

    @property
    def received_bytes(self) -> int:
        """Of the body that comes in."""
        return int(self.request.body_bytes_received) if self.request is not None else 0

    @property
    def unsent_bytes(self) -> int:
        """Of answers, not yet taken by the client."""
        return int(self.total_outbufs_len)

    def send(self, data: bytes, do_close: bool = True) -> int:
        """Hand bytes to the system; the loop's thread alone may close the connection over it."""
        is_ours = threading.get_ident() == self.server.thread_id
        try:
            sent: int = super().send(data, do_close=do_close and is_ours)
        except TimeoutError:  # TCP_USER_TIMEOUT; to waitress it is worth a traceback in the log.
            self.will_close = True
            return 0
        if sent:
            self.taken_bytes += sent
            self.taken_s = time.monotonic()
        return sent

    def recv(self, buffer_size: int) -> bytes:
        """Take bytes from the system; empty once the client has gone."""
        try:
            return bytes(super().recv(buffer_size))
        except TimeoutError:
            self.handle_close()
            return b""

    def del_channel(self, map: Any = None) -> None:
        """Called when the connection is closed."""
        self.server.forget(self, self._fileno)
        super().del_channel(map)
        self._leave()

    def _leave(self) -> None:
        if (parked := self._parked) is not None and parked.continuation is not None:
            parked.continuation.leave()

    def check_client_disconnected(self) -> bool:
        """True once the client has gone; for code that waits on its behalf."""
        return not self.connected or has_left(self.socket)

    def error_task_class(self, made: Any, request: Any) -> Any:
        """What answers a request that waitress itself refuses."""
        request.error = _ProblemError(request.error, request)
        return ErrorTask(made, request)

    def _note_waiting(self) -> None:
        if not self.total_outbufs_len:
            self.waits_since_s = None
        elif self.waits_since_s is None:
            self.waits_since_s = self.taken_s = time.monotonic()
            self.taken_bytes = 0


def has_left(sock: socket.socket | None) -> bool:
    """True once the client has closed its end; for code that waits on the client's behalf.

    Only looks: nothing is taken off the socket, which waitress leaves alone while a request runs. Waitress can find
    out by itself (``channel_request_lookahead``), but then closes the connection under the request, so a client that
    has closed only its sending half would never get its answer.
    """
    if sock is None:
        return True
    try:
        return sock.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


class _ProblemError:
    """Says an error of waitress as problem+json; stands in for its ``waitress.utilities.Error``."""

    def __init__(self, error: Any, request: Any) -> None:
        self._error, self._request = error, request

    def to_response(self, _: str | None = None) -> tuple[str, list[tuple[str, str]], bytes]:
        """Status line, headers and body."""
        code, reason = int(self._error.code), str(self._error.reason)
        problem = ProblemDetails(code, reason.lower().replace(" ", "-"), str(self._error.body))
        sent = Headers([(name.replace("_", "-"), value) for name, value in self._request.headers.items()])
        request_id = request_id_of(sent)
        body = encode(problem.as_json(instance=_target(self._request), request_id=request_id))
        headers = [
            ("Content-Type", MEDIA_TYPE),
            ("Cache-Control", "no-store"),
            ("X-Request-Id", request_id),
            ("traceparent", traceparent_of(sent)),
        ]
        return f"{code} {reason}", headers, body


def _target(request: Any) -> str:
    """The path in the request's first line as far as it is readable, fit for a URI; else ``/``."""
    words = bytes(getattr(request, "first_line", b"")).split()
    path = words[1].partition(b"?")[0] if len(words) > 1 else b""
    return quote(path[:_LONGEST_TARGET], safe="/%") or "/"
