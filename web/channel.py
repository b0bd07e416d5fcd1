"""A connection: what waitress answers by itself is problem+json, like the rest."""

import socket
from functools import partial
from typing import Any
from urllib.parse import quote

from waitress.channel import HTTPChannel
from waitress.task import ErrorTask
from werkzeug.datastructures import Headers

from web.answers import encode
from web.caller import request_id_of, traceparent_of
from web.parser import RequestParser
from web.problems import MEDIA_TYPE, Problem

_LONGEST_TARGET = 1000
"""Characters of a refused request's path that its answer repeats."""


def channel(server: Any, sock: Any, addr: Any, adjustments: Any, **options: Any) -> Any:
    """A connection of waitress that reads and fails our way; for ``server.channel_class``."""
    made = HTTPChannel(server, sock, addr, adjustments, **options)
    made.parser_class = RequestParser
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
