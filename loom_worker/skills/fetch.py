"""Fetching an archive or a SKILL.md over HTTP: guarded at every hop, bounded in bytes and in time."""

import socket
from typing import Final
from urllib.parse import urljoin

from loom_worker.core.errors import Invalid, Rejected, Transient
from loom_worker.guard.net.address import Lookup, Private, Target, target
from loom_worker.guard.net.dial import Deadline, resolve_in_time
from loom_worker.guard.net.http import HttpRequest, HttpResponse, send_request
from loom_worker.skills.collect import MAX_ARCHIVE_BYTES
from loom_worker.skills.package import named

TIMEOUT_S: Final = 30.0
"""For everything: name servers, connections, redirects, the last byte."""
MAX_REDIRECTS: Final = 5
_REDIRECTS = (301, 302, 303, 307, 308)
_QUESTION = {"Accept": "*/*", "Accept-Encoding": "identity"}


def fetch(
    url: str, *, allow_private: bool = False, timeout_s: float = TIMEOUT_S, lookup: Lookup = socket.getaddrinfo
) -> bytes:
    """Get the content of a URL, at most ``MAX_ARCHIVE_BYTES``.

    Args:
        allow_private: plain http, loopback and private addresses are no reason to refuse.

    Raises:
        Rejected: the URL, or one it redirects to, may not be called; the answer is an error or too large.
        Transient: there was no complete response.
    """
    deadline = Deadline(timeout_s)
    for _ in range(MAX_REDIRECTS + 1):
        answer, where = _asked(url, deadline, allow_private=allow_private, lookup=lookup)
        if answer.status not in _REDIRECTS:
            return _body(answer, where)
        try:
            url = urljoin(where.origin + where.path, answer.headers.get("Location", ""))
        except ValueError as error:
            raise Rejected(f"{where.host}: redirects to what is no URL") from error
    raise Rejected(f"{where.host}: more than {MAX_REDIRECTS} redirects")


def _asked(url: str, deadline: Deadline, *, allow_private: bool, lookup: Lookup) -> tuple[HttpResponse, Target]:
    """One hop; the addresses that were checked are the ones that are dialled."""
    shown = named(url)
    try:
        where = target(url, allow_private=allow_private)
        if where.scheme != "https" and not allow_private:
            raise Rejected(f"{shown}: only https is fetched; --allow-private allows http, too")
        addresses = resolve_in_time(where, deadline, allow_private=allow_private, lookup=lookup)
        question = HttpRequest("GET", where.path, headers=_QUESTION)
        return send_request(where, addresses, question, deadline=deadline, max_bytes=MAX_ARCHIVE_BYTES), where
    except Private as error:
        raise Rejected(f"{shown}: {error}; --allow-private allows loopback and private networks") from error
    except Invalid as error:
        raise Rejected(f"{shown}: {error}") from error
    except Transient as error:
        raise Transient(f"{shown}: {error}") from error


def _body(answer: HttpResponse, where: Target) -> bytes:
    if answer.status != 200:
        raise Rejected(f"{where.host}: HTTP {answer.status}")
    if answer.is_longer:
        raise Rejected(f"{where.host}: the answer is larger than {MAX_ARCHIVE_BYTES} bytes")
    if answer.error is not None:
        raise Transient(f"{where.host}: the answer is not whole: {answer.error}")
    if answer.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise Rejected(f"{where.host}: the answer is packed, though that was not asked for")
    return answer.body
