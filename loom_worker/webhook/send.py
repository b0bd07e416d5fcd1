"""Where a webhook may go, one signed attempt at a delivery within its deadline, and what follows that.

The signatures are those of Standard Webhooks 1.0.0 (https://www.standardwebhooks.com): any of its libraries can verify
them.
"""

import base64
import binascii
import hashlib
import hmac
import socket
from collections.abc import Collection
from dataclasses import dataclass, replace

from loom_worker.core.errors import Flaw, Invalid, Transient
from loom_worker.core.values.notifications import Delivery
from loom_worker.core.values.webhooks import Webhook
from loom_worker.guard.net.address import Deadline, Lookup, Private, resolve_in_time, target
from loom_worker.guard.net.http import HttpRequest, retry_after_s, send_request
from loom_worker.trace.later import traceparent

PREFIX = "whsec_"
MIN_KEY_BYTES, MAX_KEY_BYTES = 24, 64
"""Length of the decoded key. Standard Webhooks 1.0.0, Signature scheme."""


def headers(delivery_id: str, timestamp_s: int, *, body: bytes, secret: str) -> dict[str, str]:
    """Return the three headers that let the receiver check origin, age and repetition.

    Args:
        delivery_id: the same in every attempt; the receiver ignores one that it has seen.
        timestamp_s: of this attempt, seconds since 1970; receivers refuse one that is minutes off.
        body: exactly the bytes that are sent.

    Raises:
        Invalid: the secret is malformed.
    """
    signed = f"{delivery_id}.{timestamp_s}.".encode() + body
    digest = hmac.digest(_key(secret), signed, hashlib.sha256)
    return {
        "webhook-id": delivery_id,
        "webhook-timestamp": str(timestamp_s),
        "webhook-signature": "v1," + base64.b64encode(digest).decode("ascii"),
    }


def check_secret(secret: str) -> None:
    """Refuse a secret that could not sign; the text never repeats it.

    Raises:
        Invalid: not ``whsec_`` and 24-64 bytes in base64.
    """
    _key(secret)


def _key(secret: str) -> bytes:
    if not secret.startswith(PREFIX):
        raise _invalid(f"a webhook secret begins with {PREFIX}")
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX).encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise _invalid(f"a webhook secret must be base64, with its padding, after {PREFIX}") from error
    if not MIN_KEY_BYTES <= len(key) <= MAX_KEY_BYTES:
        raise _invalid(f"a webhook secret holds {MIN_KEY_BYTES}-{MAX_KEY_BYTES} bytes, this one {len(key)}")
    return key


def _invalid(detail: str) -> Invalid:
    return Invalid(detail, (Flaw("/webhook/secret", detail),))


DELAYS_S = (0, 5, 5 * 60, 30 * 60, 2 * 3600, 5 * 3600, 10 * 3600, 14 * 3600, 20 * 3600, 24 * 3600)
"""Pause before each attempt: 75.5 hours in all. Standard Webhooks 1.0.0, Retries."""
JITTER = 0.1
"""Share by which a pause is longer or shorter, so that deliveries that failed together are not repeated together."""
MAX_RETRY_AFTER_S = 24 * 3600.0
"""The longest pause that a receiver may ask for: the schedule's own longest."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """The outcome of one attempt."""

    status: int | None
    """HTTP status; None if there was no response."""
    error: str | None = None
    """Why it does not count as delivered, for people; None if it does."""
    retry_after_s: float | None = None
    """Seconds that the receiver asked to wait."""

    @property
    def is_delivered(self) -> bool:
        """True for 2xx, whatever came after the status line."""
        return self.status is not None and 200 <= self.status < 300

    @property
    def is_gone(self) -> bool:
        """True for 410: the receiver wants no further attempt."""
        return self.status == 410


def next_attempt_ms(attempts: int, now_ms: int, *, retry_after_s: float | None, chance: float) -> int | None:
    """Return when to try again; None once the schedule is used up.

    Args:
        attempts: made so far; 0 gives the first attempt, at once.
        retry_after_s: the receiver's request; it can only lengthen the pause.
        chance: 0-1, random.
    """
    if attempts >= len(DELAYS_S):
        return None
    pause_s = DELAYS_S[attempts] * (1 + JITTER * (2 * chance - 1))
    asked_s = min(retry_after_s or 0.0, MAX_RETRY_AFTER_S)
    return now_ms + round(max(pause_s, asked_s) * 1000)


def after(attempt: Attempt, delivery: Delivery, *, now_ms: int, chance: float) -> Delivery:
    """Return the delivery as it stands after an attempt at it: delivered, disabled, pending again, or dead."""
    tried = replace(
        delivery,
        attempts=delivery.attempts + 1,
        next_ms=None,
        last_status=attempt.status,
        last_error=attempt.error,
    )
    if attempt.is_delivered:
        return replace(tried, status="delivered", delivered_ms=now_ms)
    if attempt.is_gone:
        return replace(tried, status="disabled")
    next_ms = next_attempt_ms(tried.attempts, now_ms, retry_after_s=attempt.retry_after_s, chance=chance)
    return replace(tried, status="dead" if next_ms is None else "pending", next_ms=next_ms)


MAX_RESPONSE_BYTES = 64 * 1024
"""Read of a response's body so that its sender is not cut off; only status and Retry-After are used."""


def check(webhook: Webhook, *, allow_private: bool, ports: Collection[int] = ()) -> None:
    """Refuse a webhook that could never be delivered: a private target or port, a malformed URL, a malformed secret.

    Raises:
        Invalid: ``webhook-url-refused``, with the reason.
    """
    try:
        check_url(webhook.url, allow_private=allow_private, ports=ports)
        if webhook.secret is not None:
            check_secret(webhook.secret)
    except Invalid as error:
        raise Invalid(str(error), error.flaws, "webhook-url-refused") from error


def check_url(url: str, *, allow_private: bool, ports: Collection[int] = ()) -> None:
    """Refuse a URL as far as this needs no name server; Invalid: with the reason, at ``/webhook/url``."""
    try:
        target(url, allow_private=allow_private, ports=ports)
    except Invalid as error:
        detail = _reason(error)
        raise Invalid(f"webhook URL refused: {detail}", (Flaw("/webhook/url", detail),)) from error


def send(
    delivery: Delivery,
    *,
    secret: str,
    timeout_s: float,
    allow_private: bool,
    ports: Collection[int] = (),
    now_us: int,
    lookup: Lookup = socket.getaddrinfo,
) -> Attempt:
    """Post the body once, to an address that was checked, without following redirects or using a proxy.

    Args:
        secret: signs the body if the delivery has no secret of its own.
        ports: further ones below 1024 than 80 and 443 that are served.
        timeout_s: for the whole attempt: name server, connection, TLS, response.
        now_us: microseconds since 1970; it is signed in seconds, and a date in Retry-After counts from it.
    """
    deadline, now_s = Deadline(timeout_s), now_us // 1_000_000
    body = delivery.body.encode()
    try:
        receiver = target(delivery.url, allow_private=allow_private, ports=ports)
        signature = headers(delivery.id, now_s, body=body, secret=delivery.secret or secret)
        parent = traceparent(delivery, now_us)
        sent = {**(delivery.headers or {}), "Content-Type": "application/json", **signature}
        sent |= {"traceparent": parent} if parent else {}
        request = HttpRequest("POST", receiver.path, sent, body)
        addresses = resolve_in_time(receiver, deadline, allow_private=allow_private, lookup=lookup)
        response = send_request(receiver, addresses, request, deadline=deadline, max_bytes=MAX_RESPONSE_BYTES)
    except Invalid as error:
        return Attempt(None, error=_reason(error))
    except Transient as error:
        return Attempt(None, error=str(error))
    if Attempt(response.status).is_delivered:
        return Attempt(response.status)
    detail = f"HTTP {response.status}"
    if 300 <= response.status < 400:
        detail += "; redirects are not followed"
    pause_s = retry_after_s(response.headers.get("Retry-After"), now_s=now_s)
    return Attempt(response.status, error=detail, retry_after_s=pause_s)


def _reason(error: Invalid) -> str:
    hint = " (LOOM_ALLOW_PRIVATE_WEBHOOKS=1 opens private ones)" if isinstance(error, Private) else ""
    return f"{error}{hint}"
