"""How often a key may be used in a minute, and how many tokens its turns may use in one."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from loom_worker.core.settings import WebSettings
from loom_worker.core.values.api_keys import KeyHolder
from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.tools import Rate
from loom_worker.guard.rate import RateLimiter
from loom_worker.store.ledger import Ledger

WINDOW_S = 60


@dataclass(frozen=True, slots=True)
class Quota:
    """What a key may still do."""

    what: Literal["requests", "tokens"]
    limit: int
    """In any WINDOW_S seconds."""
    left: int
    more_in_s: float
    """Seconds until there is more than ``left``; 0: all there can be is left."""
    wait_s: float = 0.0
    """Seconds after which it may be tried again; 0: it may be done now."""


class RateLimits:
    """The limits of all keys; requests without a key, which come from this machine alone, have none."""

    def __init__(self, settings: WebSettings, limiter: RateLimiter, ledger: Ledger) -> None:
        self._settings = settings
        self._limiter = limiter
        self._ledger = ledger

    def take_request(self, holder: KeyHolder) -> Quota | None:
        """Count a request, if it may be served; None: the key has no limit."""
        limit = holder.limits.requests_per_minute or self._settings.key_requests_per_minute
        if holder.key_id is None or not limit:
            return None
        taken = self._limiter.take(f"key:{holder.key_id}", Rate(limit, WINDOW_S))
        return Quota("requests", limit, taken.left, taken.more_in_s, taken.wait_s)

    def look_at_tokens(self, holder: KeyHolder) -> Quota | None:
        """See whether a turn may be accepted; None: the key has no limit; Unavailable: the database did not answer."""
        limit = holder.limits.tokens_per_minute or self._settings.key_tokens_per_minute
        if holder.key_id is None or not limit:
            return None
        moment_ms = now_ms()
        booked, running = self._ledger.tokens_of_key(holder.key_id, since_ms=moment_ms - WINDOW_S * 1000)
        return tokens_left(limit, booked, running, now_ms=moment_ms)


def tokens_left(limit: int, booked: Iterable[tuple[int, int]], running: int, *, now_ms: int) -> Quota:
    """What a limit leaves.

    Args:
        booked: of turns that ended in the window, in order: when (ms), and their tokens.
        running: tokens that unfinished turns have used so far; nobody knows when those end.
    """
    entries = [(at_ms + WINDOW_S * 1000 - now_ms, tokens) for at_ms, tokens in booked]
    used = running + sum(tokens for _, tokens in entries)
    more_in_s = entries[0][0] / 1000 if entries else WINDOW_S * (running > 0)
    if used < limit:
        return Quota("tokens", limit, limit - used, more_in_s)
    for leaves_ms, tokens in entries:
        used -= tokens
        if used < limit:
            return Quota("tokens", limit, 0, more_in_s, leaves_ms / 1000)
    return Quota("tokens", limit, 0, more_in_s, WINDOW_S)
