"""Finds children that run but do no work, from what workers report with every heartbeat.

Patience is counted in looks and not in seconds: a machine that slept, or a supervisor that was stopped, wakes up to
heartbeats that look old, but has looked no more often for it.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlsplit

from loom_worker.core import redis_client
from loom_worker.core.errors import Unavailable
from loom_worker.lanes.readiness import Readiness, WorkerState, read_readiness, stuck
from loom_worker.supervisor.decide import Remedy, Row

LOOK_EVERY_S = 3.0
STUCK_LOOKS = 2
"""So often in a row a worker is found to take no turns before it is restarted."""
STILL_LOOKS = 10
"""So often in a row no heartbeat is found, half a minute, before a worker counts as hung."""
AWAY_LOOKS = 15
"""After Redis was away, so many looks say nothing of who takes turns: Celery tries to reconnect after pauses that grow
to 30 s (kombu's interval_max), while the heartbeat goes on again at once."""
REST_S = 60.0
"""Between two restarts of a worker that takes no turns: should that be no cure, it must not become the illness."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A process that is to be replaced; ``why`` goes on behind its name."""

    name: str
    remedy: Remedy
    why: str


class Rounds:
    """Looks every ``every_s``; without an answer from Redis there is no finding."""

    def __init__(self, look: Callable[[], Readiness], *, host: str, every_s: float = LOOK_EVERY_S) -> None:
        """Args: host: this machine's name, as workers know it."""
        self._look = look
        self._host = host
        self._every_s = every_s
        self.due_s = 0.0
        """Monotonic time of the next look."""
        self._known: set[int] = set()
        self._stuck: Counter[int] = Counter()
        self._still: Counter[int] = Counter()
        self._away_looks = 0
        self._rests_until_s: dict[str, float] = {}

    def make(self, rows: Sequence[Row], now_s: float) -> tuple[Finding, ...]:
        """What is found now; nothing between two looks."""
        if now_s < self.due_s:
            return ()
        self.due_s = now_s + self._every_s
        try:
            seen = self._look()
        except Unavailable:
            self._forget()
            return ()
        self._away_looks = max(0, self._away_looks - 1)
        running = {row.pid: row for row in rows if row.pid is not None and row.remedy is None}
        self._count(seen, running)
        return (*self._hung(running), *self._idle(running, seen, now_s))

    def _forget(self) -> None:
        # Before the first heartbeat was seen there was nobody who could have lost a connection.
        self._away_looks = AWAY_LOOKS if self._known else 0
        self._stuck.clear()
        self._still.clear()

    def _count(self, seen: Readiness, running: Mapping[int, Row]) -> None:
        beating, idle = self._ours(seen.workers, running), self._ours(stuck(seen), running)
        self._known = (self._known & running.keys()) | beating
        self._stuck = Counter({pid: self._stuck[pid] + 1 for pid in idle})
        # Only while other heartbeats go on: else Redis refuses to write, or was just emptied.
        still = self._known - beating if seen.workers else set()
        self._still = Counter({pid: self._still[pid] + 1 for pid in still})

    def _ours(self, workers: Sequence[WorkerState], running: Mapping[int, Row]) -> set[int]:
        here = (worker.pids for worker in workers if worker.host == self._host)
        return {pid for pids in here for pid in pids & running.keys()}

    def _hung(self, running: Mapping[int, Row]) -> list[Finding]:
        why = f"is hung (no heartbeat for {STILL_LOOKS * self._every_s:.0f} s)"
        return [Finding(running[pid].spec.name, "kill", why) for pid, n in self._still.items() if n >= STILL_LOOKS]

    def _idle(self, running: Mapping[int, Row], seen: Readiness, now_s: float) -> list[Finding]:
        if self._away_looks:
            return []
        names = [running[pid].spec.name for pid, n in self._stuck.items() if n >= STUCK_LOOKS]
        names = [name for name in names if self._rests_until_s.get(name, now_s) <= now_s]
        self._rests_until_s.update(dict.fromkeys(names, now_s + REST_S))
        why = f"is alive but takes no turns (wake-ups unanswered for {seen.unclaimed_s:.0f} s)"
        return [Finding(name, "ask", why) for name in names]


def looking(redis_url: str) -> Callable[[], Readiness]:
    """How to look at this Redis; nothing is connected yet."""
    return partial(read_readiness, redis_client.client(redis_url, connections=1, timeout_s=redis_client.LOOK_S))


TOLD_AFTER_LOOKS = 2
"""The first look comes before an embedded server is up, and a single one may be lost."""


class Telling:
    """A way to look at Redis that says when it begins to fail, and when it is over."""

    def __init__(self, look: Callable[[], Readiness], *, server: str, say: Callable[[str], None]) -> None:
        """Args: server: what is looked at, in words."""
        self._look = look
        self._server = server
        self._say = say
        self._failed = 0

    def __call__(self) -> Readiness:
        """Look; raises Unavailable as the look itself does."""
        try:
            seen = self._look()
        except Unavailable as error:
            self._failed += 1
            if self._failed == TOLD_AFTER_LOOKS:
                self._say(f"{self._server} does not answer ({error.__cause__ or error}); still trying")
            raise
        if self._failed >= TOLD_AFTER_LOOKS:
            self._say(f"{self._server} answers again")
        self._failed = 0
        return seen


def server_in_words(redis_url: str, *, is_embedded: bool) -> str:
    """A Redis in words: whose it is, and where, without user and password."""
    parts = urlsplit(redis_url)
    where = parts.path if parts.scheme == "unix" else f"{parts.hostname or 'localhost'}:{parts.port or 6379}"
    return f"the embedded server at {where}" if is_embedded else f"the Redis of LOOM_REDIS_URL at {where}"
