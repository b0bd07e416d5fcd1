"""What a refusal of the Messages API means to Loom; pure, status and body in, our error out."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC
from email.utils import parsedate_to_datetime

from loom_worker.core.errors import LoomError, Overloaded, PromptTooLong, ProviderFailed, StreamBroken
from loom_worker.llm.too_long import excess

BUSY_STATUS = frozenset({408, 409, 425, 429})
"""Beside all of 500 and above: the same request may succeed later."""
BUSY_TYPES = frozenset({"overloaded_error", "rate_limit_error", "api_error", "timeout_error"})
STATUS_OF_TYPE = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
}
"""For error events, which come after status 200."""
WAIT_STATUS = frozenset({429, 529})
"""These speak of what all requests of an account together may, however they word it."""
ADVICE = {
    401: "It does not accept the API key: set ANTHROPIC_API_KEY.",
    402: "There is a problem with the account's billing or credit.",
    403: "The API key (ANTHROPIC_API_KEY) has no permission for this, or not for this model (LOOM_MODEL).",
    404: "It does not know the model {model!r}, or the address is wrong: set LOOM_MODEL or ANTHROPIC_BASE_URL.",
    413: "The request is too large: lower LOOM_MAX_CONTEXT_TOKENS.",
}
TOO_LONG = "The request is longer than the model's window: lower LOOM_MAX_CONTEXT_TOKENS."
RATE_LIMIT = "rate-limit"
"""Third argument of an Overloaded that speaks of the account's share, not of the provider's health."""
MAX_DETAIL = 200
"""Characters of the provider's own words that are passed on."""
SECRETS = re.compile(r"\b(?:sk-[\w-]{4,200}|Bearer\s{1,5}\S{1,500})")


@dataclass(frozen=True, slots=True)
class Refused:
    """A refusal as it came over the wire."""

    status: int
    """200 for an error event in the stream; its kind decides then."""
    kind: str = ""
    """The error's ``type``, such as ``overloaded_error``; empty if unknown."""
    message: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


def is_rate_limit(error: Overloaded) -> bool:
    """True if the account has had its share for now: the provider itself is well."""
    return RATE_LIMIT in error.args[2:]


def refusal(
    refused: Refused, *, model: str, now_s: float, secret: str | None, advice: Mapping[int, str] = ADVICE
) -> LoomError:
    """Return Overloaded for what may succeed later, PromptTooLong or ProviderFailed for what will not.

    Args:
        model: the model that was asked.
        now_s: seconds since 1970, for a Retry-After that is a date.
        secret: the API key in use, to be kept out of the text.
        advice: what to do about a refusal, by its status.
    """
    kind, status = refused.kind, refused.status
    too_long = None if status in WAIT_STATUS else excess(f"{kind}: {refused.message}")
    if too_long:  # some servers of one's own answer 500 to it
        text = f"{TOO_LONG} {safe_detail(refused.message, secret)}".rstrip()
        return PromptTooLong(text, too_long.tokens, too_long.limit)
    if kind in BUSY_TYPES or status in BUSY_STATUS or status >= 500:
        wait_s = retry_after_s(refused.headers, now_s=now_s)
        is_share = kind == "rate_limit_error" or (status == 429 and kind not in BUSY_TYPES)
        text = f"The model's provider is busy ({kind or status})."
        return Overloaded(text, wait_s, RATE_LIMIT) if is_share else Overloaded(text, wait_s)
    if status < 300 and kind not in STATUS_OF_TYPE:
        return StreamBroken("The model's provider ended the reply with an error.")
    status = STATUS_OF_TYPE.get(kind, status) if status < 300 else status
    parts = (
        f"The model's provider refuses the request ({status}).",
        advice.get(status, "").format(model=model),
        safe_detail(refused.message, secret),
    )
    return ProviderFailed(" ".join(part for part in parts if part))


def safe_detail(message: str, secret: str | None) -> str:
    """One line of the provider's words, at most 200 characters, without anything that looks like a key."""
    line = " ".join(message.split())
    line = SECRETS.sub("***", line.replace(secret, "***") if secret else line)
    return f"It says: {line[:MAX_DETAIL]}" if line else ""


def retry_after_s(headers: Mapping[str, str], *, now_s: float) -> float | None:
    """Seconds from ``retry-after-ms`` or ``Retry-After`` (seconds or an HTTP date); None if absent or nonsense."""
    try:
        if "retry-after-ms" in headers:
            return _sensible(float(headers["retry-after-ms"]) / 1000)
        raw = headers.get("retry-after", "").strip()
        return _sensible(float(raw)) if re.fullmatch(r"[-+\d.eE]+", raw) else _until(raw, now_s)
    except (TypeError, ValueError, OverflowError):
        return None


def _sensible(seconds: float) -> float | None:
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def _until(raw: str, now_s: float) -> float:
    moment = parsedate_to_datetime(raw)
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, aware.timestamp() - now_s)
