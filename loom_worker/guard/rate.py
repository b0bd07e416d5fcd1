"""Rate limits: how often something may be called, by all workers together.

A list in Redis per name holds the times of the last calls, read and written by one Lua script on Redis' own clock. It
is exact: in no period of ``per_s`` seconds are more than ``calls`` calls allowed. (A leaky bucket, which keeps one
number, allows nearly twice as many in its first period.)
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from loom_worker.core.errors import ToolFailed
from loom_worker.core.values.tools import Rate
from loom_worker.guard.tolerant import Tolerant

TIMES = "loom:rate:"


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of a call."""

    wait_s: float
    """0: it was counted; otherwise the seconds after which it may be made, unless another caller is faster."""
    left: int
    """How many more may be made now."""
    more_in_s: float
    """Seconds until there is one more."""


class RateLimiter:
    """All rate limits, on one Redis; while it does not answer every call is allowed. Safe to use from many threads."""

    def __init__(self, redis: Any, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Args: redis: a redis-py client that decodes responses; clock: monotonic seconds."""
        self._clock = clock
        self._tolerant = Tolerant("rate limits", clock)
        self._script = redis.register_script((files("loom_worker.guard") / "rate.lua").read_text(encoding="utf-8"))

    def take(self, name: str, rate: Rate) -> Taken:
        """Count one call if it may be made now; ValueError: the rate allows no call."""
        if rate.calls < 1 or rate.per_s <= 0:
            raise ValueError(f"{name}: a rate must allow a call: {rate}")
        args = [rate.calls, math.ceil(rate.per_s * 1_000_000)]
        allowed = [0, rate.calls, 0]
        wait_us, left, more_us = self._tolerant.ask(
            lambda: self._script(keys=[TIMES + name], args=args), otherwise=allowed
        )
        return Taken(wait_us / 1_000_000, left, more_us / 1_000_000)

    def wait(self, name: str, rate: Rate, *, at_most_s: float, pause: Callable[[float], object]) -> None:
        """Return when one call may be made, and count it; ToolFailed: too many calls are made.

        Args:
            at_most_s: if the wait would be longer, it is not begun.
            pause: waits so many seconds; if it raises, the wait ends.
        """
        end_s = self._clock() + at_most_s
        while (wait_s := self.take(name, rate).wait_s) > 0:
            if self._clock() + wait_s > end_s:
                calls = f"{rate.calls} call{'s' if rate.calls > 1 else ''} in {rate.per_s:g} s"
                again_s = math.ceil(wait_s)
                raise ToolFailed(f"{calls} may be made, and they are used up: try again in {again_s} s", "UNAVAILABLE")
            pause(wait_s)
