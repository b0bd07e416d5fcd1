"""One attempt at a delivery. Whatever the receiver does ends in an Attempt, within the deadline."""

import contextlib
import re
import socket
import ssl
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC
from email.utils import parsedate_to_datetime
from http.client import HTTPException

from urllib3.connection import HTTPConnection
from urllib3.exceptions import HTTPError
from urllib3.util import ssl_wrap_socket

from loom_worker import __version__
from loom_worker.errors import Invalid, Transient
from loom_worker.net.address import Lookup, Target, target
from loom_worker.net.dial import Deadline, cut_at, dial, resolve_in_time
from loom_worker.values.deliveries import Delivery
from loom_worker.webhook.schedule import Attempt
from loom_worker.webhook.sign import headers

MAX_ANSWER_BYTES = 64 * 1024
"""Read of an answer's body so that its sender is not cut off; only status and Retry-After are used."""


def send(
    delivery: Delivery,
    *,
    secret: str,
    timeout_s: float,
    allow_private: bool,
    now_s: float,
    lookup: Lookup = socket.getaddrinfo,
) -> Attempt:
    """Post the body once, to an address that was checked, following no redirect and using no proxy.

    Args:
        secret: signs when the delivery has none of its own.
        timeout_s: for all of it: name server, connection, TLS, answer.
        now_s: seconds since 1970; signed, and what a date in Retry-After counts from.
    """
    deadline = Deadline(timeout_s)
    try:
        body = delivery.body.encode()
        signed = headers(delivery.id, int(now_s), body=body, secret=delivery.secret or secret)
        where = target(delivery.url, allow_private=allow_private)
        addresses = resolve_in_time(where, deadline, allow_private=allow_private, lookup=lookup)
        status, retry_after = _post(where, addresses, body=body, signed=signed, deadline=deadline)
    except (Invalid, Transient) as error:
        return Attempt(None, error=str(error))
    except (OSError, HTTPException, HTTPError) as error:
        return Attempt(None, error=f"no answer within {timeout_s:g} s" if deadline.is_over else _reason(error))
    attempt = Attempt(status)
    if attempt.is_delivered:
        return attempt
    return replace(attempt, error=_refusal(status), retry_after_s=retry_after_s(retry_after, now_s=now_s))


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


def _post(
    where: Target, addresses: tuple[str, ...], *, body: bytes, signed: Mapping[str, str], deadline: Deadline
) -> tuple[int, str | None]:
    """Return status and Retry-After of the answer."""
    with contextlib.ExitStack() as opened:
        sock = opened.enter_context(dial(addresses, where.port, deadline))
        sock.settimeout(deadline.left_s)
        opened.enter_context(cut_at(deadline, sock))
        connection = HTTPConnection(where.host, where.port, timeout=deadline.left_s)
        opened.callback(connection.close)
        connection.sock = _secured(sock, where.host) if where.scheme == "https" else sock
        connection.request(
            "POST",
            where.path,
            body=body,
            headers={
                "Host": where.authority,
                "Content-Type": "application/json",
                "User-Agent": f"Loom/{__version__}",
                **signed,
            },
            preload_content=False,
            decode_content=False,
        )
        answer = opened.enter_context(contextlib.closing(connection.getresponse()))
        if deadline.is_over:  # to the parser, headers that were cut off look complete
            raise TimeoutError
        with contextlib.suppress(OSError, HTTPException, HTTPError):  # the status stands, however the body ends
            answer.read(MAX_ANSWER_BYTES)
        return answer.status, answer.headers.get("Retry-After")


def _secured(sock: socket.socket, host: str) -> ssl.SSLSocket:
    """TLS with the URL's name in it, checked against the system's authorities, though an address was dialled."""
    return ssl_wrap_socket(sock, server_hostname=host.removesuffix("."))


def _refusal(status: int) -> str:
    if 300 <= status < 400:
        return f"HTTP {status}; redirects are not followed"
    return f"HTTP {status}"


def _reason(error: Exception) -> str:
    """Say in a few words what went wrong; never in the receiver's words, which might be another service's secrets."""
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
