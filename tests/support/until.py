"""Waiting for what another process or thread does: a deadline, and never a fixed pause."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

BUSY = 4
"""So many times longer may everything take on a machine that is busy with other things."""

AT_ONCE_S = 30.0
"""What waits for nothing takes less on any machine; what it must not wait for is made to last longer."""


def until(condition: Callable[[], T], timeout_s: float, what: str) -> T:
    """The condition's first true answer; an AssertionError names ``what`` did not come in time.

    Args:
        timeout_s: generous for a quiet machine; a busy one has longer.
    """
    answer = within(condition, timeout_s * BUSY)
    if not answer:
        raise AssertionError(f"not within {timeout_s * BUSY} s: {what}")
    return answer


def within(condition: Callable[[], T], timeout_s: float) -> T:
    """The condition's first true answer, or its last one when the time is over."""
    deadline = time.monotonic() + timeout_s
    while True:
        answer = condition()
        if answer or time.monotonic() > deadline:
            return answer
        time.sleep(0.01)
