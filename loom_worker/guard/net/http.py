"""One HTTP request to an address that was checked: no proxy, no redirect, and nothing outlives the deadline.

The answer is read whole, or while it comes (``open_request``).
"""

import contextlib
import re
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from typing import Any

from urllib3.connection import HTTPConnection
from urllib3.exceptions import HTTPError
from urllib3.response import BaseHTTPResponse
from urllib3.util import ssl_wrap_socket

from loom_worker import __version__
from loom_worker.core.errors import Transient
from loom_worker.guard.net.address import Deadline, Target, cut_at, dial

_PIECE_BYTES = 64 * 1024
FAILURES = (OSError, HTTPException, HTTPError)
"""What a connection may raise."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """What is sent; ``Host`` and ``User-Agent`` are added."""

    method: str
    path: str
    """With the query, percent-encoded."""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """What came back, as it was on the wire."""

    status: int
    headers: Mapping[str, str]
    """Looked up in any case."""
    body: bytes
    is_longer: bool = False
    """True: the body is only the beginning of what was sent."""
    error: str | None = None
    """Why the body is incomplete: it was cut off or garbled; status and headers are valid all the same."""


class NoResponse(Transient):
    """There was no response, or none that is HTTP; ``args[1]`` is True if the request may have arrived."""

    @property
    def may_have_arrived(self) -> bool:
        """False: the server cannot have begun to process the request."""
        return bool(self.args[1])


def send_request(
    target: Target, addresses: Sequence[str], request: HttpRequest, *, deadline: Deadline, max_bytes: int
) -> HttpResponse:
    """Connect to one of the addresses, which the caller has checked, and send the request under the target's name.

    Args:
        max_bytes: of the response's body; the rest is not read.

    Raises:
        NoResponse: in our own words, never in the server's, which might be another service's secrets.
    """
    is_sent = False
    try:
        with connected(target, addresses, deadline) as connection:
            is_sent = True
            _send(connection, target, request)
            return _response(connection, deadline, max_bytes)
    except FAILURES as error:
        raise NoResponse(reason(error, deadline), is_sent) from error


def retry_after_s(header: str | None, *, now_s: float) -> float | None:
    """Return the pause that a ``Retry-After`` asks for, in seconds or as a date; None if it cannot be read."""
    text = (header or "").strip()
    if re.fullmatch(r"[0-9]{1,10}", text):
        return float(text)
    try:
        moment = parsedate_to_datetime(text)
        return max(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() - now_s, 0.0)
    except (ValueError, TypeError, OverflowError):
        return None


@contextlib.contextmanager
def connected(target: Target, addresses: Sequence[str], deadline: Deadline) -> Iterator[HTTPConnection]:
    """A connection to one of the addresses, with TLS where the target has it; it is cut at the deadline."""
    with contextlib.ExitStack() as opened:
        sock = opened.enter_context(dial(addresses, target.port, deadline))
        sock.settimeout(deadline.left_s)
        opened.enter_context(cut_at(deadline, sock))
        connection = HTTPConnection(target.host, target.port, timeout=deadline.left_s)
        opened.callback(connection.close)
        connection.sock = sock
        if target.scheme == "https":
            # The certificate must name the URL's host and come from the system's authorities, though an address was
            # dialled.
            connection.sock = ssl_wrap_socket(sock, server_hostname=target.host.removesuffix("."))
        yield connection


def _send(connection: HTTPConnection, target: Target, request: HttpRequest) -> None:
    headers = {"Host": target.authority, "User-Agent": f"Loom/{__version__}", **request.headers}
    what: dict[str, Any] = {"body": request.body, "headers": headers}
    connection.request(request.method, request.path, **what, preload_content=False, decode_content=False)


def _response(connection: HTTPConnection, deadline: Deadline, max_bytes: int) -> HttpResponse:
    with contextlib.closing(connection.getresponse()) as response:
        if deadline.is_over:  # to the parser, headers that were cut off look complete
            raise TimeoutError
        body, why = _body(response, deadline, max_bytes)
        return HttpResponse(response.status, response.headers, body[:max_bytes], len(body) > max_bytes, why)


def _body(response: BaseHTTPResponse, deadline: Deadline, max_bytes: int) -> tuple[bytes, str | None]:
    """The body, up to one piece more than ``max_bytes``, and why it is incomplete."""
    body = bytearray()
    try:
        while len(body) <= max_bytes and (piece := response.read(_PIECE_BYTES)):
            body += piece
    except FAILURES as error:
        return bytes(body), reason(error, deadline)
    # A shutdown at the deadline looks like the end of a body of unknown length.
    return bytes(body), _late(deadline) if deadline.is_over else None


def reason(error: Exception, deadline: Deadline) -> str:
    """What became of a connection, in our own words."""
    if deadline.is_over:
        return _late(deadline)
    match error:
        case ssl.SSLCertVerificationError():
            return f"TLS: {error.verify_message}"[:200]
        case ssl.SSLError():
            return "TLS: the handshake failed"
        case TimeoutError():
            return "connection timed out"
        case ConnectionRefusedError():
            return "connection refused"
        case ConnectionError():
            return "closed without an answer"
        case OSError():
            return f"connection failed: {error.strerror or type(error).__name__}"
        case _:
            return "the answer is not HTTP"


def _late(deadline: Deadline) -> str:
    return f"no answer within {deadline.timeout_s:g} s"


@dataclass(frozen=True, slots=True)
class OpenAnswer:
    """An answer whose body is still to come; close it."""

    status: int
    headers: Mapping[str, str]
    """Looked up in any case."""
    response: BaseHTTPResponse
    deadline: Deadline
    handle: socket.socket
    """A second handle of the connection: TLS takes over the first one."""
    opened: contextlib.ExitStack

    def chunks(self) -> Iterator[bytes]:
        """The body, as it arrives; NoResponse: it broke off, or the deadline came."""
        try:
            if getattr(self.response, "chunked", False):
                yield from self.response.read_chunked(decode_content=False)
            else:
                while piece := self.response.read1(_PIECE_BYTES, decode_content=False):
                    yield piece
        except FAILURES as error:
            raise NoResponse(reason(error, self.deadline), True) from error
        if self.deadline.is_over:  # a shutdown at the deadline looks like the end of a body of unknown length
            raise NoResponse(reason(TimeoutError(), self.deadline), True)

    def close(self) -> None:
        """Drop the connection."""
        self.opened.close()

    def hang_up(self) -> None:
        with contextlib.suppress(OSError):  # it may be closed by now
            self.handle.shutdown(socket.SHUT_RDWR)


def open_request(
    target: Target,
    addresses: Sequence[str],
    request: HttpRequest,
    *,
    deadline: Deadline,
    before_sending: Callable[[], None],
) -> OpenAnswer:
    """Connect to one of the addresses, which the caller has checked, and send the request under the target's name.

    Args:
        before_sending: called once there is a connection, and before the first byte; what it raises ends the request.
    """
    is_sent = False
    with contextlib.ExitStack() as opened:
        try:
            connection = opened.enter_context(connected(target, addresses, deadline))
            handle = opened.enter_context(connection.sock.dup())
            before_sending()
            is_sent = True
            _send(connection, target, request)
            response = connection.getresponse()
        except FAILURES as error:
            raise NoResponse(reason(error, deadline), is_sent) from error
        opened.callback(response.close)
        return OpenAnswer(response.status, response.headers, response, deadline, handle, opened.pop_all())
    raise AssertionError  # an ExitStack that swallows nothing returns or raises above
