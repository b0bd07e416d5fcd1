"""Limits of calls by all workers together, kept in Redis: rates, and circuit breakers for what fails again and again.

A list in Redis per name holds the times of the last calls, read and written by one Lua script on Redis' own clock. It
is exact: in no period of ``per_s`` seconds are more than ``calls`` calls allowed. (A leaky bucket, which keeps one
number, allows nearly twice as many in its first period.)

A process counts its own failures first, for they may be its own fault: no file descriptors, no memory, a host it cannot
resolve. The breaker of all processes opens once two of them have opened their own of a name, or sources of several have
failed, and none succeeded meanwhile. One Lua script changes hashes in Redis, one per name and process and one per name,
on Redis' own clock. None of it must survive: if Redis loses its data, or does not answer, the breakers are closed.

A breaker is *closed*: calls are made. Failures of several sources (sessions) in a row *open* it: calls are refused
without being made. When its time is over it is *half-open*: one call at a time is made, the probe. Failed probes of two
sources in a row open it for twice as long, several successful ones close it. The breaker of all processes opens again
only if probes of two processes fail in a row.
"""

import hashlib
import logging
import math
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal, TypeVar, get_args

from loom_worker.core import metrics
from loom_worker.core.errors import ToolFailed, Unavailable
from loom_worker.core.redis_client import translate_redis_errors
from loom_worker.core.text import one_line
from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.tools import Rate

log = logging.getLogger(__name__)

T = TypeVar("T")

PAUSE_S = 5.0
"""Redis is not asked for this long after a failure: if it hangs, it costs one caller its timeout, not every caller."""
LOG_S = 60.0
"""At most one line in the log per this many seconds."""


class Tolerant:
    """Asks Redis, and gives a default while it does not answer. Safe to use from many threads."""

    def __init__(self, what: str, clock: Callable[[], float]) -> None:
        """Args: what: the guard, for the log; clock: monotonic seconds."""
        self._what = what
        self._clock = clock
        self._lock = threading.Lock()
        self._ask_at_s = float("-inf")
        self._log_at_s = float("-inf")

    def ask(self, question: Callable[[], T], *, otherwise: T) -> T:
        """Redis' answer to a question, or ``otherwise``."""
        if self._clock() < self._ask_at_s:
            return otherwise
        try:
            with translate_redis_errors():
                return question()
        except Unavailable as error:
            self._note(error)
            return otherwise

    def _note(self, error: Unavailable) -> None:
        now_s = self._clock()
        with self._lock:
            self._ask_at_s = now_s + PAUSE_S
            is_due = now_s >= self._log_at_s
            if is_due:
                self._log_at_s = now_s + LOG_S
        if is_due:
            log.warning("%s: going on without it: %s", self._what, error)


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


State = Literal["closed", "half-open", "open"]
_WORSE: tuple[State, ...] = get_args(State)

HASH = "loom:breaker:"
OPENED = "loom:breaker-opened:"
"""Sorted set per name: the processes that have opened theirs since anyone last succeeded."""
NAMES = "loom:breakers"
"""Sorted set of the names that have a hash, by the time (ms) at which that goes."""

UNANSWERED = "loom:models-unanswered"
"""Hash, for a day: each model whose latest call failed, to when that began (ms), a space, and why it failed last."""


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """When a breaker opens and how it closes."""

    failures: int = 5
    """Failures of this many sources in a row open it."""
    window_s: float = 60.0
    """If no further source fails for so long, the next failure begins a new row."""
    open_s: float = 30.0
    max_open_s: float = 60.0
    successes: int = 2
    """This many successful probes in a row close it."""
    busy_s: float = 6.0
    """While a probe runs, others may ask again after this time, or when the probe's time is up."""


@dataclass(frozen=True, slots=True)
class CallPermit:
    """Whether a call may be made."""

    open_for_s: float | None = None
    """Not None: do not call; ask again after this many seconds."""
    token: str | None = None
    """Not None: the call is the probe, and its outcome must be reported with this token."""

    @property
    def state(self) -> State:
        """The breaker's state at the time of this call."""
        if self.open_for_s is not None:
            return "open"
        return "closed" if self.token is None else "half-open"


CLOSED = CallPermit()


class Breakers:
    """All breakers, on one Redis. Safe to use from many threads; no method raises if Redis fails."""

    def __init__(
        self,
        redis: Any,
        *,
        policy: BreakerPolicy = BreakerPolicy(),
        clock: Callable[[], float] = time.monotonic,
        process: str | None = None,
    ) -> None:
        """Nothing is sent yet.

        Args:
            redis: a redis-py client that decodes responses.
            clock: monotonic seconds, to limit how often a Redis that does not answer is asked.
            process: whose failures these are; by default the host's name and this process' id.
        """
        self._redis = redis
        self._policy = policy
        self._process = process or f"{socket.gethostname()}-{os.getpid()}"
        self._tolerant = Tolerant("circuit breakers", clock)
        source = (files("loom_worker.guard") / "breaker.lua").read_text(encoding="utf-8")
        self._script = redis.register_script(source)

    def under(self, policy: BreakerPolicy) -> "Breakers":
        """These breakers, with another policy."""
        other = copy(self)
        other._policy = policy
        return other

    def permit(self, name: str, *, probe_s: float = 60.0) -> CallPermit:
        """Ask whether to call. If so, the caller reports the outcome: succeeded, failed or abandoned.

        Args:
            probe_s: the longest a call takes; a probe that has not reported by then loses its right.
        """
        token = secrets.token_hex(8)
        state, left_ms = self._tolerant.ask(lambda: self._run("look", name, token, probe_s), otherwise=(0, 0))
        if state == 2:
            metrics.BREAKER_REFUSALS.count(name)
            return CallPermit(open_for_s=left_ms / 1000)
        return CallPermit(token=token) if state == 1 else CLOSED

    def succeeded(self, name: str, token: str | None = None) -> None:
        """Report a call that did what it should. Without a token it counts only while the breaker is closed."""
        self._report("succeeded", name, token)

    def failed(self, name: str, token: str | None = None, *, source: str = "") -> None:
        """Report a call that failed by no fault of its caller; a source counts once, an empty one each time."""
        self._report("failed", name, token, source)

    def abandoned(self, name: str, token: str | None = None) -> None:
        """Report a call whose end says nothing, because it was cancelled, say: another call may be the probe."""
        if token is not None:
            self._report("let_go", name, token)

    def tell_answer(self, model: str, failure: str | None = None) -> None:
        """Keep for people why a model did not answer, and since when, until it does; None: it answered."""

        def tell() -> None:
            if failure is None:
                self._redis.hdel(UNANSWERED, model)
            else:
                since_ms = (self._redis.hget(UNANSWERED, model) or str(now_ms())).partition(" ")[0]
                self._redis.hset(UNANSWERED, model, f"{since_ms} {one_line(failure)}")
                self._redis.expire(UNANSWERED, 86_400)

        self._tolerant.ask(tell, otherwise=None)

    def open_now(self, names: Iterable[str]) -> dict[str, float]:
        """Those of them that are open now, with the seconds left; in one round trip, and without becoming the probe."""
        wanted = list(dict.fromkeys(names))
        left = self._left_ms([hashed for name in wanted for hashed in (name, self._own(name))])
        longest = {name: max(left.get(name) or 0, left.get(self._own(name)) or 0) for name in wanted}
        return {name: ms / 1000 for name, ms in longest.items() if ms}

    def states(self) -> dict[str, State]:
        """Every breaker with a recent failure, in its worst state of any process; all others are closed."""
        nobody: list[str] = []
        names = self._tolerant.ask(self._recent, otherwise=nobody)
        found: dict[str, State] = {}
        for hashed, ms in self._left_ms(names).items():
            name = hashed.partition("|")[0]
            state: State = "closed" if ms is None else "open" if ms else "half-open"
            found[name] = max(found.get(name, "closed"), state, key=_WORSE.index)
        return found

    def _report(self, verb: str, name: str, token: str | None, source: str = "") -> None:
        state, _ = self._tolerant.ask(lambda: self._run(verb, name, token or "", 0.0, source), otherwise=(0, 0))
        if state == 2:
            metrics.BREAKERS_OPENED.count(name)

    def _run(self, verb: str, name: str, token: str, probe_s: float, source: str = "") -> tuple[int, int]:
        policy = self._policy
        waits_ms = [_ms(wait_s) for wait_s in (policy.window_s, policy.open_s, policy.max_open_s)]
        args = [verb, name, token, policy.failures, *waits_ms, policy.successes, _ms(policy.busy_s), _ms(probe_s)]
        hashes = [HASH + self._own(name), HASH + name, OPENED + name, NAMES]
        digest = hashlib.blake2b(source.encode("utf-8", "replace"), digest_size=8).hexdigest() if source else ""
        state, left_ms = self._script(keys=hashes, args=[*args, self._process, digest])
        return state, left_ms

    def _own(self, name: str) -> str:
        return f"{name}|{self._process}"

    def _recent(self) -> list[str]:
        now_ms = _now_ms(self._redis.time())
        names: list[str] = self._redis.zrange(NAMES, now_ms, "+inf", byscore=True)
        self._redis.zremrangebyscore(NAMES, "-inf", f"({now_ms}")
        return names

    def _left_ms(self, names: list[str]) -> dict[str, int | None]:
        """Milliseconds for which each is still open, 0 if half-open, None if closed."""
        nothing: dict[str, int | None] = {}
        return self._tolerant.ask(lambda: self._read(names), otherwise=nothing) if names else nothing

    def _read(self, names: list[str]) -> dict[str, int | None]:
        with self._redis.pipeline(transaction=False) as pipe:
            pipe.time()
            for name in names:
                pipe.hmget(HASH + name, "until_ms", "span_ms")
            now, *found = pipe.execute()
        ends = (_left_ms(until_ms, span_ms, _now_ms(now)) for until_ms, span_ms in found)
        return dict(zip(names, ends, strict=True))


def _left_ms(until_ms: str | None, span_ms: str | None, now_ms: int) -> int | None:
    if until_ms is None or span_ms is None:
        return None
    left_ms = int(until_ms) - now_ms
    return left_ms if 0 < left_ms <= int(span_ms) else 0  # more than its span: the clock was set back


def _now_ms(redis_time: tuple[int, int]) -> int:
    return redis_time[0] * 1000 + redis_time[1] // 1000


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))
