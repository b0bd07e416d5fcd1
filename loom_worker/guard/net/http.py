"""One question over HTTP to an address that was checked: no proxy, no redirect, and nothing outlives the deadline."""

import contextlib
import re
import socket
import ssl
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from email.utils import parsedate_to_datetime
from http.client import HTTPException

from urllib3.connection import HTTPConnection
from urllib3.exceptions import HTTPError
from urllib3.response import BaseHTTPResponse
from urllib3.util import ssl_wrap_socket

from loom_worker import __version__
from loom_worker.core.errors import Transient
from loom_worker.guard.net.address import Target
from loom_worker.guard.net.dial import Deadline, cut_at, dial

_PIECE_BYTES = 64 * 1024
_FAILURES = (OSError, HTTPException, HTTPError)


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked; ``Host`` and ``User-Agent`` are added."""

    method: str
    path: str
    """With the query, percent-encoded."""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, as it was on the wire."""

    status: int
    headers: Mapping[str, str]
    """Any case finds them."""
    body: bytes
    is_longer: bool = False
    """True: the body is only the beginning of what was sent."""
    flaw: str | None = None
    """Why the body is not whole: it was cut off or garbled; status and headers stand."""


class NoAnswer(Transient):
    """There was no answer, or none that is HTTP; ``args[1]`` is True if the question may have arrived."""

    @property
    def may_have_arrived(self) -> bool:
        """False: the other side cannot have begun what it was asked for."""
        return bool(self.args[1])


def ask(where: Target, addresses: Sequence[str], question: Question, *, deadline: Deadline, max_bytes: int) -> Answer:
    """Connect to one of the addresses, which the caller has had checked, and ask there under the target's name.

    Args:
        max_bytes: of the answer's body; what follows is not read.

    Raises:
        NoAnswer: in words of ours, never in the other side's, which might be another service's secrets.
    """
    sent = False
    try:
        with _connected(where, addresses, deadline) as connection:
            sent = True
            return _asked(connection, where, question, deadline=deadline, max_bytes=max_bytes)
    except _FAILURES as error:
        raise NoAnswer(_reason(error, deadline), sent) from error


def retry_after_s(header: str | None, *, now_s: float) -> float | None:
    """Return the pause a ``Retry-After`` asks for, whether in seconds or as a date; None if it cannot be read."""
    text = (header or "").strip()
    if re.fullmatch(r"[0-9]{1,10}", text):
        return float(text)
    try:
        moment = parsedate_to_datetime(text)
        return max(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() - now_s, 0.0)
    except (ValueError, TypeError, OverflowError):
        return None


@contextlib.contextmanager
def _connected(where: Target, addresses: Sequence[str], deadline: Deadline) -> Iterator[HTTPConnection]:
    with contextlib.ExitStack() as opened:
        sock = opened.enter_context(dial(addresses, where.port, deadline))
        sock.settimeout(deadline.left_s)
        opened.enter_context(cut_at(deadline, sock))
        connection = HTTPConnection(where.host, where.port, timeout=deadline.left_s)
        opened.callback(connection.close)
        connection.sock = _secured(sock, where.host) if where.scheme == "https" else sock
        yield connection


def _secured(sock: socket.socket, host: str) -> ssl.SSLSocket:
    """TLS with the URL's name in it, checked against the system's authorities, though an address was dialled."""
    return ssl_wrap_socket(sock, server_hostname=host.removesuffix("."))


def _asked(
    connection: HTTPConnection, where: Target, question: Question, *, deadline: Deadline, max_bytes: int
) -> Answer:
    connection.request(
        question.method,
        question.path,
        body=question.body,
        headers={"Host": where.authority, "User-Agent": f"Loom/{__version__}", **question.headers},
        preload_content=False,
        decode_content=False,
    )
    with contextlib.closing(connection.getresponse()) as response:
        if deadline.is_over:  # to the parser, headers that were cut off look complete
            raise TimeoutError
        body, flaw = _body(response, deadline, max_bytes)
        return Answer(response.status, response.headers, body[:max_bytes], len(body) > max_bytes, flaw)


def _body(response: BaseHTTPResponse, deadline: Deadline, max_bytes: int) -> tuple[bytes, str | None]:
    """What came of the body, at most a piece more than ``max_bytes``, and why there is not all of it."""
    body = bytearray()
    try:
        while len(body) <= max_bytes and (piece := response.read(_PIECE_BYTES)):
            body += piece
    except _FAILURES as error:
        return bytes(body), _reason(error, deadline)
    # A shutdown at the deadline looks like the end of a body whose length was not told.
    return bytes(body), _late(deadline) if deadline.is_over else None


def _reason(error: Exception, deadline: Deadline) -> str:
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
