"""Signatures of Standard Webhooks 1.0.0 (https://www.standardwebhooks.com): any of its libraries can verify them."""

import base64
import binascii
import hashlib
import hmac

from loom_worker.core.errors import Flaw, Invalid

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


def new_secret(entropy: bytes) -> str:
    """Return the secret of 24-64 random bytes; Invalid: fewer or more bytes."""
    secret = PREFIX + base64.b64encode(entropy).decode("ascii")
    check_secret(secret)
    return secret


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
