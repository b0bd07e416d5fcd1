"""Circuit breakers: what has failed again and again is left alone for a while.

A process counts its own failures first, for they may be its own fault: no file descriptors, no memory, a host it cannot
resolve. Once two processes have opened their own breakers of a name, and none succeeded meanwhile, all processes leave
it alone together. Hashes in Redis, one per name and process and one per name, are changed by one Lua script on Redis'
own clock. Nothing of it is worth keeping: a Redis that forgets, or does not answer, means closed breakers.

A breaker is *closed*: calls go through. Some failures in a row *open* it: calls are answered at once, without being
made. When its time is over it is *half-open*: one call at a time goes through, the probe. A probe that fails opens it
for twice as long, some successful ones close it. That of all processes is opened again only if probes of two processes
fail in a row.
"""

import os
import secrets
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal, get_args

from loom_worker.guard.tolerant import Tolerant

State = Literal["closed", "half-open", "open"]
_WORSE: tuple[State, ...] = get_args(State)

HASH = "loom:breaker:"
OPENED = "loom:breaker-opened:"
"""Sorted set per name: the processes that have opened theirs since anyone last succeeded."""
NAMES = "loom:breakers"
"""Sorted set of the names that have a hash, by the time (ms) at which that goes."""


@dataclass(frozen=True, slots=True)
class Pace:
    """When a breaker opens and how it closes."""

    failures: int = 5
    """So many in a row open it."""
    window_s: float = 60.0
    """A failure that comes later than this after the one before begins a new row."""
    open_s: float = 30.0
    max_open_s: float = 60.0
    successes: int = 2
    """So many probes in a row close it."""
    busy_s: float = 6.0
    """While a probe is under way others are asked to come back after this, or when its time is up."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a call may be made."""

    open_for_s: float | None = None
    """Not None: do not call; ask again after so many seconds."""
    token: str | None = None
    """Not None: the call is the probe, and how it ends must be told with this."""

    @property
    def state(self) -> State:
        """The breaker's state, as this call finds it."""
        if self.open_for_s is not None:
            return "open"
        return "closed" if self.token is None else "half-open"


CLOSED = Verdict()


class Breakers:
    """All breakers, on one Redis. Safe to use from many threads; no method raises for what Redis does."""

    def __init__(
        self,
        redis: Any,
        *,
        pace: Pace = Pace(),
        clock: Callable[[], float] = time.monotonic,
        process: str | None = None,
    ) -> None:
        """Nothing is sent yet.

        Args:
            redis: a redis-py client that decodes responses.
            clock: monotonic seconds, to ask a Redis that is away only now and then.
            process: whose failures these are; by default the host's name and this process' id.
        """
        self._redis = redis
        self._pace = pace
        self._process = process or f"{socket.gethostname()}-{os.getpid()}"
        self._tolerant = Tolerant("circuit breakers", clock)
        source = (files("loom_worker.guard") / "breaker.lua").read_text(encoding="utf-8")
        self._script = redis.register_script(source)

    def look(self, name: str, *, probe_s: float = 60.0) -> Verdict:
        """Ask whether to call. Whoever may call tells afterwards how it went: succeeded, failed or let_go.

        Args:
            probe_s: the longest a call takes; a probe that was not heard of for so long has lost its right.
        """
        token = secrets.token_hex(8)
        state, left_ms = self._tolerant.ask(lambda: self._run("look", name, token, probe_s), otherwise=(0, 0))
        if state == 2:
            return Verdict(open_for_s=left_ms / 1000)
        return Verdict(token=token) if state == 1 else CLOSED

    def succeeded(self, name: str, token: str | None = None) -> None:
        """A call did what it should. Without a token it counts only while the breaker is closed."""
        self._tell("succeeded", name, token)

    def failed(self, name: str, token: str | None = None) -> None:
        """A call failed by no fault of its caller. Without a token it counts only while the breaker is closed."""
        self._tell("failed", name, token)

    def let_go(self, name: str, token: str | None = None) -> None:
        """A call ended and says nothing, for it was cancelled, say: another may be the probe."""
        if token is not None:
            self._tell("let_go", name, token)

    def peek(self, names: Iterable[str]) -> dict[str, float]:
        """Those of them that are open now, with the seconds left; in one round trip, and without becoming the probe."""
        wanted = list(dict.fromkeys(names))
        left = self._left_ms([hashed for name in wanted for hashed in (name, self._own(name))])
        longest = {name: max(left.get(name) or 0, left.get(self._own(name)) or 0) for name in wanted}
        return {name: ms / 1000 for name, ms in longest.items() if ms}

    def states(self) -> dict[str, State]:
        """Every breaker that heard of a failure lately, in its worst state of any process; others are closed."""
        nobody: list[str] = []
        names = self._tolerant.ask(self._known, otherwise=nobody)
        found: dict[str, State] = {}
        for hashed, ms in self._left_ms(names).items():
            name = hashed.partition("|")[0]
            found[name] = max(found.get(name, "closed"), _state(ms), key=_WORSE.index)
        return found

    def _tell(self, verb: str, name: str, token: str | None) -> None:
        self._tolerant.ask(lambda: self._run(verb, name, token or "", 0.0), otherwise=(0, 0))

    def _run(self, verb: str, name: str, token: str, probe_s: float) -> tuple[int, int]:
        pace = self._pace
        waits_ms = [_ms(wait_s) for wait_s in (pace.window_s, pace.open_s, pace.max_open_s)]
        args = [verb, name, token, pace.failures, *waits_ms, pace.successes, _ms(pace.busy_s), _ms(probe_s)]
        hashes = [HASH + self._own(name), HASH + name, OPENED + name, NAMES]
        state, left_ms = self._script(keys=hashes, args=[*args, self._process])
        return state, left_ms

    def _own(self, name: str) -> str:
        """What the process' own breaker of this name is kept under."""
        return f"{name}|{self._process}"

    def _known(self) -> list[str]:
        now_ms = _now_ms(self._redis.time())
        names: list[str] = self._redis.zrange(NAMES, now_ms, "+inf", byscore=True)
        self._redis.zremrangebyscore(NAMES, "-inf", f"({now_ms}")
        return names

    def _left_ms(self, names: list[str]) -> dict[str, int | None]:
        """Milliseconds that each is still open, 0 if half-open, None if closed."""
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


def _state(open_ms: int | None) -> State:
    if open_ms is None:
        return "closed"
    return "open" if open_ms else "half-open"


def _now_ms(redis_time: tuple[int, int]) -> int:
    return redis_time[0] * 1000 + redis_time[1] // 1000


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))
