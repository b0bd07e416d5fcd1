"""What follows an attempt: another one, the end, or none because the receiver asked for it. Pure."""

from dataclasses import dataclass, replace

from loom_worker.core.values.notifications import Delivery

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
