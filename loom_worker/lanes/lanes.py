"""A session's lane: who may run its next turn, and when a wake-up must be sent. Each transition is one Lua script.

A lane is idle, or it has a lease: *kicked* (a wake-up is under way), *running* (a worker holds it) or *parked* (its
turn waits for something). Redis only orders and wakes; what a worker may write is decided by the database's fence.

A lane that is to be woken goes to a *free slot* first: a thread of a worker that has ended a lane's turns and waits for
another lane (``slots.py``). Only if there is none a wake-up must be sent, which Celery brings.
"""

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Literal, NamedTuple, get_args

from loom_worker.core.redis_client import translate_redis_errors
from loom_worker.core.settings import LaneSettings
from loom_worker.lanes import keys

SCRIPTS = (
    *("submit", "take", "renew", "park", "wake", "alert", "complete", "advance", "release", "drop", "expire"),
    "next",
)
AT_ONCE = -1
"""A lane that is released is to be woken now."""

Renewal = Literal["lost", "held", "alerted", "gone"]
"""lost: another worker has it. held: it is renewed. alerted: it is renewed, and its turn's row has changed. gone:
nobody has it, and this renewal came too late to write it again."""
_RENEWALS: tuple[Renewal, ...] = get_args(Renewal)


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to run a lane's next turn, for as long as it is renewed."""

    lane: str
    token: str
    last_seq: int
    """The lane's highest seq when it was taken; turns that arrived since are higher."""
    content: str = field(default="", compare=False)
    """The version of all content that agents are made of, as of then; empty: nobody has accepted any."""


class Advanced(NamedTuple):
    """What becomes of a slot whose turn has ended."""

    lease: Lease | None
    """For the next turn that it is to run, of the same lane or another; None: it has nothing to run."""
    must_wake: bool
    """True if a wake-up must be sent for the lane whose turn has ended: it has more turns, and others waited longer."""


class Lanes:
    """All lanes, on one Redis."""

    def __init__(self, redis: Any, settings: LaneSettings) -> None:
        """Args: redis: a redis-py client that decodes responses."""
        self._redis = redis
        # A lease that was renewed in time has as long left after a gap of this length, less a heartbeat's pause.
        self._gap_ms = int(settings.lease_s * 1000) // 2
        self._pulse = source("pulse")
        self._lease_ms = int(settings.lease_s * 1000)
        self._kick_ms = int(settings.kick_s * 1000)
        self._max_kick_ms = int(settings.max_kick_s * 1000)
        self._scripts: dict[str, Callable[..., Any]] = {name: redis.register_script(_source(name)) for name in SCRIPTS}
        self._withdraw: Callable[..., Any] = redis.register_script(source("withdraw"))

    def submit(self, lane: str, turns: Iterable[tuple[int, str]]) -> bool:
        """Put (seq, turn id) pairs on a lane; True if a wake-up must be sent."""
        pairs = [part for pair in turns for part in pair]
        return self._must_wake("submit", lane, *pairs)

    def take(self, lane: str, token: str) -> Lease | None:
        """Take a lane for lease_s; None while another worker has it.

        Args:
            token: never used before, by anyone.
        """
        last_seq, content = self._run("take", lane, token)
        return Lease(lane, token, last_seq, content) if last_seq >= 0 else None

    def renew(self, leases: Iterable[Lease], *, late: Container[Lease] = ()) -> dict[Lease, Renewal]:
        """Renew leases in one round trip; return the state of each.

        Args:
            late: those whose last renewal is older than a lease; they are renewed only if they still exist.
        """
        wanted = list(leases)
        with translate_redis_errors(), self._redis.pipeline(transaction=False) as pipe:
            for lease in wanted:
                self._run("renew", lease.lane, lease.token, int(lease in late), client=pipe)
            answers = pipe.execute() if wanted else []
        return {lease: _RENEWALS[answer] for lease, answer in zip(wanted, answers, strict=True)}

    def park(self, lease: Lease, *, wait_ms: int) -> bool:
        """Let the lane wait; True if it was woken meanwhile, so a wake-up must be sent at once.

        Args:
            wait_ms: the sweep sends a wake-up after this time, should every other signal be lost.
        """
        return bool(self._run("park", lease.lane, lease.token, wait_ms) == 2)

    def wake(self, lane: str, ticket: str) -> bool:
        """End a lane's waiting; True if a wake-up must be sent. While its turn runs, a repeated ticket does nothing."""
        return self._must_wake("wake", lane, ticket)

    def alert(self, lane: str) -> bool:
        """Have the row of the lane's first turn read again, for it has changed; True if a wake-up must be sent."""
        return self._must_wake("alert", lane)

    def complete(self, lease: Lease, seq: int) -> bool:
        """Take all turns up to seq off the lane and give it back; True if there are more, so a wake-up must be sent."""
        return self._must_wake("complete", lease.lane, lease.token, seq)

    def advance(self, lease: Lease, seq: int, *, slot: str = "", wait_s: float = 0.0) -> Advanced:
        """As complete, but the lane stays ours if it has more turns and no other lane's wake-up waits for a worker.

        Args:
            slot: a name never used before. If the lane does not stay ours, this slot gets the one whose wake-up has
                waited longest. Empty: this thread has no time for another turn.
            wait_s: for so long the slot counts as free if there is no such lane; 0: not at all.
        """
        return advanced(self._run("advance", *self.advance_args(lease, seq, slot, wait_s)))

    def advance_args(self, lease: Lease, seq: int, slot: str, wait_s: float) -> tuple[Any, ...]:
        """The lane and the arguments of advance, for a script that does more in the same step."""
        return lease.lane, lease.token, seq, slot, int(wait_s * 1000)

    def next(self, slot: str, *, wait_s: float) -> Lease | None:
        """The lane whose wake-up has waited longest for a worker; without one the slot counts as free for wait_s.

        Args:
            slot: a name never used before.
        """
        lane, last_seq, content = self._run("next", "", slot, int(wait_s * 1000))
        return Lease(lane, slot, last_seq, content) if lane else None

    def assigned(self, slot: str, *, wait_s: float) -> Lease | None:
        """The lane that a free slot was given, for which it waits up to wait_s; None: none so far."""
        with translate_redis_errors():
            found = self._redis.blpop([keys.assigned(slot)], timeout=wait_s)
        return None if found is None else _assigned(slot, found[1])

    def withdraw(self, slot: str) -> Lease | None:
        """A slot is not free any more; the lane that it was given just before, None if it was given none."""
        with translate_redis_errors():
            found = self._withdraw(keys=[keys.FREE_SLOTS, keys.assigned(slot)], args=[slot])
        return _assigned(slot, found) if found else None

    def release(self, lease: Lease, *, wait_ms: int | None = None) -> bool:
        """Give the lane back with its turn unfinished; True if a wake-up must be sent.

        Args:
            wait_ms: after which the sweep wakes it; None: it is to be woken at once.
        """
        return self._must_wake("release", lease.lane, lease.token, AT_ONCE if wait_ms is None else wait_ms)

    def drop(self, lease: Lease) -> None:
        """Give the lane back without a wake-up: nothing in it can run now."""
        self._run("drop", lease.lane, lease.token)

    def expired(self, *, limit: int) -> list[str]:
        """Lanes that need a wake-up: their lease has run out, or nobody took their last one.

        Records since when the oldest wake-up has waited, see readiness.py. Running turns are spared for the time of a
        lease after Redis itself stood still, for nobody could renew anything.
        """
        with translate_redis_errors():
            spares = not self.pulse()
            seconds, micros = self._redis.time()
            now_ms = seconds * 1000 + micros // 1000
            lapsed = self._redis.zrange(keys.LEASES, "-inf", now_ms, byscore=True, offset=0, num=limit)
            return [lane for lane in lapsed if self._expire(lane, spares=spares) == 1]

    def pulse(self, client: Any = None) -> bool:
        """Record that Redis runs; False for the time of a lease after it stood still.

        Args:
            client: a pipeline to put this on; the returned value then means nothing.
        """
        # EVAL: in a pipeline redis-py first asks if its registered scripts exist, one more round trip per heartbeat.
        redis = client or self._redis
        return bool(redis.eval(self._pulse, 2, keys.PULSE, keys.GRACE, self._gap_ms, self._lease_ms))

    def _expire(self, lane: str, *, spares: bool) -> int:
        args = [*self.lane_args(lane), self._max_kick_ms, int(spares)]
        answer: int = self._scripts["expire"](keys=[*lane_keys(lane), keys.UNCLAIMED], args=args)
        return answer

    def unleased(self, lanes: Iterable[str]) -> list[str]:
        """Those of the lanes that nobody runs, waits for or has sent a wake-up for."""
        wanted = list(lanes)
        with translate_redis_errors(), self._redis.pipeline(transaction=False) as pipe:
            for lane in wanted:
                pipe.exists(keys.lease(lane))
            answers = pipe.execute() if wanted else []
        return [lane for lane, known in zip(wanted, answers, strict=True) if not known]

    def forget(self, lane: str) -> None:
        """Remove a deleted session's lane."""
        with translate_redis_errors():
            self._redis.delete(keys.lane(lane), keys.lease(lane))
            self._redis.zrem(keys.LEASES, lane)

    def lane_args(self, lane: str) -> list[Any]:
        """The first arguments of every script."""
        return [lane, self._lease_ms, self._kick_ms]

    def _must_wake(self, name: str, lane: str, *args: Any) -> bool:
        return bool(self._run(name, lane, *args) == 1)

    def _run(self, name: str, lane: str, *args: Any, client: Any = None) -> Any:
        with translate_redis_errors():
            return self._scripts[name](keys=lane_keys(lane), args=[*self.lane_args(lane), *args], client=client)


def lane_keys(lane: str) -> list[str]:
    """The first keys of every script."""
    return [keys.lane(lane), keys.lease(lane), keys.LEASES, keys.WAKEUPS, keys.FREE_SLOTS, keys.CONTENT_VERSION]


def advanced(answer: list[Any]) -> Advanced:
    """What the function advance of the scripts answered."""
    lane, token, last_seq, content, must_wake = answer
    return Advanced(Lease(lane, token, last_seq, content) if lane else None, must_wake == 1)


def source(name: str) -> str:
    """The text of a script of this package."""
    return (files("loom_worker.lanes") / f"{name}.lua").read_text(encoding="utf-8")


def _source(name: str) -> str:
    return "\n".join(map(source, ("common", name)))


def _assigned(slot: str, text: str) -> Lease:
    """What a slot was given: lane, highest seq, and the version of all content, which may have spaces."""
    lane, last_seq, content = text.split(" ", 2)
    return Lease(lane, slot, int(last_seq), content)
