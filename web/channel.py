"""What waitress answers by itself, brought in line with the rest: problem+json, and 413 that the client can read."""

import socket
from functools import partial
from typing import Any
from urllib.parse import quote

from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser, ParsingError
from waitress.task import ErrorTask
from waitress.utilities import RequestEntityTooLarge
from werkzeug.datastructures import Headers

from web.answers import encode
from web.caller import request_id_of, traceparent_of
from web.problems import MEDIA_TYPE, Problem

LINGER_BYTES = 64 * 1024 * 1024
"""Of a body over the limit this much is thrown away before the connection is cut."""
_LONGEST_TARGET = 1000
"""Characters of a refused request's path that its answer repeats."""


def channel(server: Any, sock: Any, addr: Any, adjustments: Any, **options: Any) -> Any:
    """A connection of waitress that reads and fails our way; for ``server.channel_class``."""
    made = HTTPChannel(server, sock, addr, adjustments, **options)
    made.parser_class = LingeringParser
    made.error_task_class = _problem_task
    made.check_client_disconnected = partial(has_left, sock)
    return made


def has_left(sock: socket.socket) -> bool:
    """True once the client has closed its end; for whoever waits on the client's behalf.

    Only looks: nothing is taken off the socket, which waitress leaves alone while a request runs. Waitress can find
    out by itself (``channel_request_lookahead``), but then closes the connection under the request, so a client that
    has closed only its sending half would never get its answer.
    """
    try:
        return sock.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


class LingeringParser(HTTPRequestParser):  # type: ignore[misc]  # waitress has no types
    """Drops a body over the limit as it comes in, and answers behind it.

    Waitress answers at once and closes; with the body still under way TCP then resets the connection, and most
    clients report that instead of the 413. A client that asks first (``Expect: 100-continue``) is answered at once.
    """

    completed = False
    expect_continue = False

    def received(self, data: bytes) -> int:
        """Read on; the request is complete once the unwanted body has passed by."""
        consumed: int = super().received(data)
        if self.completed and isinstance(self.error, RequestEntityTooLarge):
            self._linger()
        return consumed

    def parse_header(self, header_plus: bytes) -> None:
        """Take a target that is no URI (``http://[x``) for a bad request, where waitress drops the connection."""
        try:
            super().parse_header(header_plus)
        except ValueError as error:
            raise ParsingError("Bad URI") from error

    def _linger(self) -> None:
        if self.expect_continue:
            self.expect_continue = False  # Or waitress would ask for the very body it has refused.
            return
        self.body_rcv.buf.close()
        self.body_rcv.buf = _Drain()
        is_over = self.body_rcv.completed or self.body_rcv.error
        self.completed = bool(is_over) or self.body_bytes_received > LINGER_BYTES


class _Drain:
    """A buffer that keeps nothing."""

    def append(self, data: bytes) -> None:
        """Forget the data."""

    def close(self) -> None:
        """Hold nothing, release nothing."""

    def __len__(self) -> int:
        return 0


def _problem_task(made: Any, request: Any) -> Any:
    request.error = _ProblemError(request.error, request)
    return ErrorTask(made, request)


class _ProblemError:
    """Says an error of waitress as problem+json; stands in for its ``waitress.utilities.Error``."""

    def __init__(self, error: Any, request: Any) -> None:
        self._error, self._request = error, request

    def to_response(self, _: str | None = None) -> tuple[str, list[tuple[str, str]], bytes]:
        """Status line, headers and body."""
        code, reason = int(self._error.code), str(self._error.reason)
        problem = Problem(code, reason.lower().replace(" ", "-"), str(self._error.body))
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
    """The path in the request's first line as far as it can be told, fit for a URI; else ``/``."""
    words = bytes(getattr(request, "first_line", b"")).split()
    path = words[1].partition(b"?")[0] if len(words) > 1 else b""
    return quote(path[:_LONGEST_TARGET], safe="/%") or "/"
