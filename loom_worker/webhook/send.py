"""One attempt at a delivery. Whatever the receiver does ends in an Attempt, within the deadline."""

import socket

from loom_worker.core.errors import Invalid, Transient
from loom_worker.core.values.notifications import Delivery
from loom_worker.guard.net.address import Lookup, target
from loom_worker.guard.net.dial import Deadline, resolve_in_time
from loom_worker.guard.net.http import Question, ask, retry_after_s
from loom_worker.webhook.address import reason
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
        where = target(delivery.url, allow_private=allow_private)
        question = _question(delivery, where.path, secret=secret, now_s=now_s)
        addresses = resolve_in_time(where, deadline, allow_private=allow_private, lookup=lookup)
        answer = ask(where, addresses, question, deadline=deadline, max_bytes=MAX_ANSWER_BYTES)
    except Invalid as error:
        return Attempt(None, error=reason(error))
    except Transient as error:
        return Attempt(None, error=str(error))
    if Attempt(answer.status).is_delivered:
        return Attempt(answer.status)
    wished_s = retry_after_s(answer.headers.get("Retry-After"), now_s=now_s)
    return Attempt(answer.status, error=_refusal(answer.status), retry_after_s=wished_s)


def _question(delivery: Delivery, path: str, *, secret: str, now_s: float) -> Question:
    body = delivery.body.encode()
    signed = headers(delivery.id, int(now_s), body=body, secret=delivery.secret or secret)
    return Question("POST", path, {"Content-Type": "application/json", **signed}, body)


def _refusal(status: int) -> str:
    if 300 <= status < 400:
        return f"HTTP {status}; redirects are not followed"
    return f"HTTP {status}"
