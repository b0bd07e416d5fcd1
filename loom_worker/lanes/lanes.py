"""A session's lane: who may run its next turn, and when a wake-up must be sent. Each transition is one Lua script.

A lane is idle, or it has a lease: *kicked* (a wake-up is under way), *running* (a worker holds it) or *parked* (its
turn waits for something). Redis only orders and wakes; what a worker may write is decided by the database's fence.
"""

from collections.abc import Container, Iterable
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any, Literal, Protocol, get_args

from loom_worker.core.redis_client import translate_redis_errors
from loom_worker.core.settings import LaneSettings
from loom_worker.lanes import keys

SCRIPTS = ("submit", "take", "renew", "park", "wake", "alert", "complete", "advance", "release", "drop", "expire")

Renewal = Literal["lost", "held", "alerted", "gone"]
"""lost: another worker has it. held: it is renewed. alerted: it is renewed, and its turn's row has changed. gone:
nobody has it, and this renewal came too late to write it again."""
_RENEWALS: tuple[Renewal, ...] = get_args(Renewal)


class Script(Protocol):
    """A script as redis-py's register_script returns it."""

    def __call__(self, keys: list[str], args: list[Any], client: Any = None) -> Any:
        """Run it."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to run a lane's next turn, for as long as it is renewed."""

    lane: str
    token: str
    last_seq: int
    """The lane's highest seq when it was taken; turns that arrived since are higher."""


class Lanes:
    """All lanes, on one Redis."""

    def __init__(self, redis: Any, settings: LaneSettings) -> None:
        """Args: redis: a redis-py client that decodes responses."""
        self._redis = redis
        # A lease that was renewed in time has as long left after a gap of this length, less a heartbeat's pause.
        self._gap_ms = int(settings.lease_s * 1000) // 2
        self._pulse = (files("loom_worker.lanes") / "pulse.lua").read_text(encoding="utf-8")
        self._lease_ms = int(settings.lease_s * 1000)
        self._kick_ms = int(settings.kick_s * 1000)
        self._max_kick_ms = int(settings.max_kick_s * 1000)
        self._scripts: dict[str, Script] = {name: redis.register_script(_source(name)) for name in SCRIPTS}

    def submit(self, lane: str, turns: Iterable[tuple[int, str]]) -> bool:
        """Put (seq, turn id) pairs on a lane; True if a wake-up must be sent."""
        pairs = [part for pair in turns for part in pair]
        return self._run("submit", lane, self._kick_ms, *pairs) == 1

    def take(self, lane: str, token: str) -> Lease | None:
        """Take a lane for lease_s; None while another worker has it.

        Args:
            token: never used before, by anyone.
        """
        last_seq = self._run("take", lane, token, self._lease_ms)
        return Lease(lane, token, last_seq) if last_seq >= 0 else None

    def renew(self, leases: Iterable[Lease], *, late: Container[Lease] = ()) -> dict[Lease, Renewal]:
        """Renew leases in one round trip; return the state of each.

        Args:
            late: those whose last renewal is older than a lease; they are renewed only if they still exist.
        """
        wanted = list(leases)
        with translate_redis_errors(), self._redis.pipeline(transaction=False) as pipe:
            for lease in wanted:
                self._run("renew", lease.lane, lease.token, self._lease_ms, int(lease in late), client=pipe)
            answers = pipe.execute() if wanted else []
        return {lease: _RENEWALS[answer] for lease, answer in zip(wanted, answers, strict=True)}

    def park(self, lease: Lease, *, wait_ms: int) -> bool:
        """Let the lane wait; True if it was woken meanwhile, so a wake-up must be sent at once.

        Args:
            wait_ms: the sweep sends a wake-up after this time, should every other signal be lost.
        """
        return self._run("park", lease.lane, lease.token, wait_ms) == 2

    def wake(self, lane: str, ticket: str) -> bool:
        """End a lane's waiting; True if a wake-up must be sent. While its turn runs, a repeated ticket does nothing."""
        return self._run("wake", lane, self._kick_ms, ticket) == 1

    def alert(self, lane: str) -> bool:
        """Have the row of the lane's first turn read again, for it has changed; True if a wake-up must be sent."""
        return self._run("alert", lane, self._kick_ms) == 1

    def complete(self, lease: Lease, seq: int) -> bool:
        """Take all turns up to seq off the lane and give it back; True if there are more, so a wake-up must be sent."""
        return self._run("complete", lease.lane, lease.token, seq, self._kick_ms) == 1

    def advance(self, lease: Lease, seq: int) -> tuple[Lease | None, bool]:
        """As complete, but the lane stays ours if it has more turns and no other lane's wake-up waits for a worker.

        Returns:
            The lease for the lane's next turn, None if it was given back; and True if a wake-up must be sent.
        """
        last_seq = self._run("advance", lease.lane, lease.token, seq, self._kick_ms, self._lease_ms)
        return (replace(lease, last_seq=last_seq) if last_seq > 0 else None), last_seq == -2

    def release(self, lease: Lease, *, wait_ms: int | None = None) -> bool:
        """Give the lane back with its turn unfinished; True if it was still ours, so a wake-up must be sent.

        Args:
            wait_ms: when the sweep sends a wake-up; kick_s unless given.
        """
        return self._run("release", lease.lane, lease.token, self._kick_ms if wait_ms is None else wait_ms) == 1

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
        lane_keys = [keys.lane(lane), keys.lease(lane), keys.LEASES, keys.UNCLAIMED]
        answer: int = self._scripts["expire"](
            keys=lane_keys, args=[lane, self._kick_ms, self._max_kick_ms, int(spares)]
        )
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

    def _run(self, name: str, lane: str, *args: Any, client: Any = None) -> int:
        lane_keys = [keys.lane(lane), keys.lease(lane), keys.LEASES, keys.WAKEUPS]
        with translate_redis_errors():
            answer: int = self._scripts[name](keys=lane_keys, args=[lane, *args], client=client)
        return answer


def _source(name: str) -> str:
    folder = files("loom_worker.lanes")
    return "\n".join((folder / f"{part}.lua").read_text(encoding="utf-8") for part in ("common", name))
