"""The content of a URL that others name: each hop is checked, and read no further than its bound."""

import socket
from dataclasses import dataclass
from urllib.parse import urljoin

from loom_worker.core.errors import Invalid, Rejected, Transient
from loom_worker.guard.net.address import Deadline, Lookup, Private, Target, named, resolve_in_time, target
from loom_worker.guard.net.http import HttpRequest, HttpResponse, send_request

MAX_REDIRECTS = 5
_REDIRECTS = (301, 302, 303, 307, 308)
_QUESTION = {"Accept": "*/*", "Accept-Encoding": "identity"}


@dataclass(frozen=True, slots=True)
class Fetching:
    """What may be fetched, and how much of it."""

    max_bytes: int
    opens: str
    """The option or setting that allows private addresses, for the text of a refusal."""
    allow_private: bool = False
    """Plain http, loopback and private addresses are no reason to refuse."""
    needs_https: bool = False
    timeout_s: float = 30.0
    """For everything: name servers, connections, redirects, the last byte."""
    lookup: Lookup = socket.getaddrinfo


def fetch(url: str, by: Fetching) -> bytes:
    """Get the content of a URL.

    Raises:
        Rejected: the URL, or one it redirects to, may not be called; the answer is an error or too large.
        Transient: there was no complete response.
    """
    deadline = Deadline(by.timeout_s)
    for _ in range(MAX_REDIRECTS + 1):
        answer, where = _asked(url, deadline, by)
        if answer.status not in _REDIRECTS:
            return _body(answer, where, by.max_bytes)
        try:
            url = urljoin(where.origin + where.path, answer.headers.get("Location", ""))
        except ValueError as error:
            raise Rejected(f"{where.host}: redirects to what is no URL") from error
    raise Rejected(f"{where.host}: more than {MAX_REDIRECTS} redirects")


def _asked(url: str, deadline: Deadline, by: Fetching) -> tuple[HttpResponse, Target]:
    """One hop; the addresses that were checked are the ones that are dialled."""
    shown = named(url)
    try:
        where = target(url, allow_private=by.allow_private)
        if where.scheme != "https" and by.needs_https and not by.allow_private:
            raise Rejected(f"{shown}: only https is fetched; {by.opens} allows http, too")
        addresses = resolve_in_time(where, deadline, allow_private=by.allow_private, lookup=by.lookup)
        question = HttpRequest("GET", where.path, headers=_QUESTION)
        return send_request(where, addresses, question, deadline=deadline, max_bytes=by.max_bytes), where
    except Private as error:
        raise Rejected(f"{shown}: {error}; {by.opens} allows loopback and private networks") from error
    except Invalid as error:
        raise Rejected(f"{shown}: {error}") from error
    except Transient as error:
        raise Transient(f"{shown}: {error}") from error


def _body(answer: HttpResponse, where: Target, max_bytes: int) -> bytes:
    if answer.status != 200:
        raise Rejected(f"{where.host}: HTTP {answer.status}")
    if answer.is_longer:
        raise Rejected(f"{where.host}: the answer is larger than {max_bytes} bytes")
    if answer.error is not None:
        raise Transient(f"{where.host}: the answer is not whole: {answer.error}")
    if answer.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise Rejected(f"{where.host}: the answer is packed, though that was not asked for")
    return answer.body
