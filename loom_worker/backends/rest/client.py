"""Sends one question to the API and follows it no further than the API's own origin."""

import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import urljoin, urlsplit

from loom_worker.backends.rest.openapi import BODILESS, READING
from loom_worker.core.errors import Invalid, ToolFailed, Transient
from loom_worker.guard.net.address import Deadline, Lookup, Target, resolve_in_time, target
from loom_worker.guard.net.http import HttpRequest, HttpResponse, NoResponse, retry_after_s, send_request

MAX_ANSWER_BYTES = 10_000_000
"""Read of an answer, as it is sent and once it is unpacked."""
MAX_REDIRECTS = 3
_REDIRECTS = (301, 302, 303, 307, 308)


@dataclass(frozen=True, slots=True)
class RestClient:
    """Asks one API; may be used from many threads."""

    base: Target
    """Of the operator's own choice: only scheme, host and port count here."""
    headers: Mapping[str, str] = field(repr=False)
    """Sent with every question, the secret among them."""
    timeout_s: float
    """For all of a call: name server, connection, TLS, redirects, answer."""
    allow_private: bool
    """The base may be a loopback or private address. Redirects never leave its origin, so it opens no other."""
    lookup: Lookup = socket.getaddrinfo

    def ask(self, question: HttpRequest) -> HttpResponse:
        """Return the answer, whatever its status, except for a redirect that is not followed.

        Raises:
            ToolFailed: UNAVAILABLE: there was no whole answer, or it points elsewhere.
        """
        deadline = Deadline(self.timeout_s)
        sent = replace(question, headers={"Accept": "application/json, */*;q=0.5", **question.headers})
        sent = replace(sent, headers={**sent.headers, "Accept-Encoding": "gzip", **self.headers})
        for _ in range(MAX_REDIRECTS + 1):
            answer = self._once(sent, deadline)
            if answer.status not in _REDIRECTS:
                return answer
            sent = replace(sent, path=self._next(sent, answer))
        raise _unavailable(f"more than {MAX_REDIRECTS} redirects")

    def _once(self, question: HttpRequest, deadline: Deadline) -> HttpResponse:
        """Resolve and ask anew at each hop: the addresses that were checked are the ones that are dialled."""
        may_be_private = self.allow_private
        try:
            addresses = resolve_in_time(self.base, deadline, allow_private=may_be_private, lookup=self.lookup)
            answer = send_request(self.base, addresses, question, deadline=deadline, max_bytes=MAX_ANSWER_BYTES)
        except Invalid as error:
            raise _unavailable(f"{self.base.host} may not be called: {error}") from error
        except NoResponse as error:
            raise _unavailable(str(error) + _doubt(question.method, error.may_have_arrived)) from error
        except Transient as error:
            raise _unavailable(str(error)) from error
        if answer.error is not None and not answer.is_longer:
            raise _unavailable(f"HTTP {answer.status}, but {_cut(answer.error)}{_doubt(question.method, True)}")
        return answer

    def _next(self, question: HttpRequest, answer: HttpResponse) -> str:
        """The path a redirect leads to, within the same origin."""
        location = answer.headers.get("Location", "")
        try:
            hop = target(urljoin(self.base.origin + question.path, location), allow_private=self.allow_private)
        except (Invalid, ValueError) as error:
            raise _unavailable(f"HTTP {answer.status}: it redirects to what may not be called ({error})") from error
        if question.method not in BODILESS or hop.origin != self.base.origin:
            elsewhere = f"{hop.origin}{urlsplit(hop.path).path}"
            raise _unavailable(f"HTTP {answer.status}: it redirects to {elsewhere[:300]}, which is not followed")
        return hop.path


def retry_advice(answer: HttpResponse) -> str:
    """What an answer's Retry-After asks for, in words; empty if it asks for nothing."""
    wished_s = retry_after_s(answer.headers.get("Retry-After"), now_s=time.time())
    return "" if wished_s is None else f" (asks to wait {wished_s:.0f} s)"


def _doubt(method: str, may_have_arrived: bool) -> str:
    if method in READING or not may_have_arrived:
        return ""
    return f"; whether this {method} was done is unknown"


def _cut(flaw: str) -> str:
    return f"the body is not whole: {flaw}"


def _unavailable(detail: str) -> ToolFailed:
    return ToolFailed(detail, "UNAVAILABLE")
