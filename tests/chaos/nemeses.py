"""What is done to a running world; each kind is one method's name, and each deed is written down with its times."""

import contextlib
import os
import random
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from loom_worker.core.sqlite_driver import sqlite3
from loom_worker.lanes import keys
from tests.chaos import turned_clock
from tests.chaos.collector import MODES
from tests.chaos.messages import Messages
from tests.chaos.records import Injection
from tests.chaos.recovery import Recoveries
from tests.chaos.store_server import POOLER, SERVER
from tests.chaos.world import LATE, World
from tests.support import system
from tests.support.postgres import kill_whole
from tests.support.until import within

STOPPED_S = 5.0
"""Longer than a lease (3 s)."""
SWALLOWED_S = 5.0
FROZEN_S = 3.0
LOCKED_S = 8.0
FULL_S = 4.0
CLOCK_S = 12.0
HOOKS_S = 3.0
COLLECTOR_S = 4.0
"""Less than the 7 s over which a batch of traces is tried."""
DYING_S = 0.3
"""What a process sent just before its death arrives this much later at most."""
LOOK_S = 0.05
TO_BE_BUSY_S = 5.0
"""For something to be under way that a deed waits for."""
SEEN_S = 0.3
"""Until a client has seen that a turn waits for it; it takes longer to decide (decisions.py)."""
LIMITED_BYTES = 64 * 1024
"""Where no file system can be mounted, what a process may write beyond in any file."""


class Nemeses:
    """Deeds against one world; the long ones may be under way together."""

    def __init__(self, world: World, recoveries: Recoveries, *, seed: int) -> None:
        self._world, self._crew, self._recoveries = world, world.crew, recoveries
        self._chance = random.Random(f"nemeses {seed}")
        self._messages = Messages(world)
        self._late = 0
        self._busy: list[threading.Thread] = []

    def do(self, kind: str) -> None:
        """One deed, in a thread of its own."""
        deed: Callable[[], None] = getattr(self, kind)
        thread = threading.Thread(target=deed, name=f"nemesis {kind}", daemon=True)
        self._busy.append(thread)
        thread.start()

    def wait(self) -> None:
        """Until all deeds are over."""
        for thread in self._busy:
            thread.join(60)

    def kill(self) -> None:
        """SIGKILL to one process of Loom's: mostly workers, now and then web or beat."""
        others = ("web", "beat")
        self._kill(self._chance.choice((*self._world.turn_workers * 2, *self._world.workers, *others)), "kill")

    def web(self) -> None:
        """SIGKILL to the process that clients talk to."""
        self._kill("web", "kill")

    def tree(self) -> None:
        """SIGKILL to a worker and all it has started."""
        self._kill(self._chance.choice(self._world.workers), "tree")

    def tools(self) -> None:
        """SIGKILL to a tool worker while a child process of it runs a call, if that comes to pass."""
        query = "SELECT worker FROM calls WHERE status = 'running' AND name <> 'pause' AND worker IS NOT NULL"
        pids = {self._crew.pid(name): name for name in self._world.workers if name.startswith("tools-")}

        def busy() -> str | None:
            found = (pids.get(system.pid_of(str(worker))) for (worker,) in self._world.rows(query))
            return next(filter(None, found), None)

        if name := within(busy, TO_BE_BUSY_S):
            self._kill(name, "kill")

    def blackout(self) -> None:
        """SIGKILL to everything of Loom's at once, while a person thinks about something, if that comes to pass."""
        waiting = "SELECT 1 FROM {} WHERE status = 'requires_action'"
        query = " UNION ALL ".join(map(waiting.format, ("turns", "run_stages")))
        within(lambda: self._world.rows(query), TO_BE_BUSY_S)
        time.sleep(SEEN_S)
        for name in self._world.loom_names:
            self._kill(name, "kill")

    def broker(self) -> None:
        """SIGKILL to the broker."""
        self._crew.signal("broker", signal.SIGKILL)
        self._note("broker", "broker", time.time())

    def flush(self) -> None:
        """All that the broker remembers is gone."""
        with contextlib.suppress(Exception), self._world.redis() as client:  # it may be dead just now
            client.flushall()
            self._note("flush", "broker", time.time())

    def swallow(self) -> None:
        """The broker takes all bytes and answers none."""
        with self._for(SWALLOWED_S, "swallow", "broker"):
            self._crew.signal("proxy", signal.SIGUSR1)
        self._crew.signal("proxy", signal.SIGUSR2)

    def freeze(self) -> None:
        """The broker answers late."""
        with self._for(FROZEN_S, "swallow", "broker, answers late"):
            self._crew.signal("broker", signal.SIGSTOP)
        self._crew.signal("broker", signal.SIGCONT)

    def stop(self) -> None:
        """A worker sleeps past its leases, and goes on as if nothing had been."""
        self._stop(self._chance.choice((*self._world.turn_workers * 2, *self._world.workers)))

    def zombie(self) -> None:
        """The same with the worker that holds most turns, once it holds some."""
        within(lambda: self._world.hold_of(self._busiest()), STOPPED_S)
        self._stop(self._busiest())

    def owner(self) -> None:
        """SIGKILL to the worker that holds most turns, once it holds some."""
        within(lambda: self._world.hold_of(self._busiest()), TO_BE_BUSY_S)
        self._kill(self._busiest(), "kill")

    def _busiest(self) -> str:
        return max(self._world.turn_workers, key=lambda name: len(self._world.hold_of(name)))

    def _stop(self, name: str) -> None:
        pid = self._crew.signal(name, signal.SIGSTOP)
        with self._for(STOPPED_S, "stop", name):
            self._recoveries.watch(name)
        if self._crew.pid(name) == pid:
            self._crew.signal(name, signal.SIGCONT)

    def hooks(self) -> None:
        """The receiver answers all webhooks badly, one way or another."""
        mode = self._chance.choice(("down", "error", "redirect", "hang", "slow"))
        with self._for(HOOKS_S, "hooks", mode):
            self._world.set_receiver(mode)
        self._world.set_receiver("")

    def collector(self) -> None:
        """The collector of traces does not answer, one way or another; nothing may pile up meanwhile."""
        mode = self._chance.choice(MODES)
        self._world.set_collector(mode)
        until_s = time.monotonic() + COLLECTOR_S
        with self._for(0, "collector", mode):
            while time.monotonic() < until_s:
                self._count_messages()
                time.sleep(LOOK_S)
        self._world.set_collector("")

    def _count_messages(self) -> None:
        with contextlib.suppress(Exception), self._world.redis() as client:  # it may be dead just now
            self._world.most_trace_messages = max(self._world.most_trace_messages, client.llen(keys.TRACES))

    def term(self) -> None:
        """SIGTERM to a worker, in the middle of its turns; the keeper starts another."""
        name = self._chance.choice(self._world.workers)
        self._crew.signal(name, signal.SIGTERM)
        self._note("term", name, time.time())

    def lock(self) -> None:
        """Another process keeps the database's write lock."""
        if self._world.server is not None:
            with self._world.server.locked(), self._for(LOCKED_S, "lock", SERVER):
                return
        with closing(sqlite3.connect(self._world.home / "loom.db", timeout=20, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            with self._for(LOCKED_S, "lock", "loom.db"):
                pass
            connection.execute("ROLLBACK")

    def database(self) -> None:
        """SIGKILL to all of the server that keeps the store."""
        at_s = time.time()
        kill_whole(self._crew.pid(SERVER))
        within(lambda: self._world.server is not None and self._world.server.answers(), TO_BE_BUSY_S)
        self._note("database", SERVER, at_s)

    def pooler(self) -> None:
        """SIGKILL to what stands between Loom and that server."""
        self._crew.signal(POOLER, signal.SIGKILL)
        self._note("database", POOLER, time.time())

    def full(self) -> None:
        """Nothing more can be written to the home."""
        fill = self._filled if self._world.has_own_disk else self._limited
        with fill(), self._for(FULL_S, "full", "disk" if self._world.has_own_disk else "limits of its processes"):
            pass

    def clock(self) -> None:
        """A worker whose clock is an hour ahead comes and goes."""
        faketime = turned_clock.library()
        if faketime is None:
            self._world.left_out.append("clock: there is no libfaketime")
            return
        self._late += 1
        name = f"{LATE}-{self._late}"
        self._world.start_late_worker(name, faketime)
        with self._for(CLOCK_S, "clock", name):
            pass
        if self._late % 2:
            self._crew.finish((name,), 20)
        else:
            self._crew.forget(name)
            self._kill(name, "kill")

    def duplicate(self) -> None:
        """Messages that are under way come five times."""
        for target in self._messages.repeat(5):
            self._note("duplicate", target, time.time())

    def race(self) -> None:
        """Send every lane's wake-up four times at once."""
        if self._messages.wake_all(4):
            self._note("race", "lanes", time.time())

    def _kill(self, name: str, kind: str) -> None:
        self._recoveries.watch(name)
        at_s = time.time()
        if self._crew.signal(name, signal.SIGKILL, is_tree=kind == "tree"):
            self._world.injections.append(Injection(kind, name, at_s, at_s + DYING_S))

    @contextmanager
    def _for(self, seconds: float, kind: str, target: str) -> Iterator[None]:
        began_s = time.time()
        yield
        time.sleep(seconds)
        self._note(kind, target, began_s)

    def _note(self, kind: str, target: str, began_s: float) -> None:
        self._world.injections.append(Injection(kind, target, began_s, time.time()))

    @contextmanager
    def _filled(self) -> Iterator[None]:
        filler = self._world.home / "filler"
        handle = os.open(filler, os.O_CREAT | os.O_WRONLY)
        try:
            for size in (1 << 20, 1 << 12):
                with contextlib.suppress(OSError):
                    while True:
                        os.write(handle, bytes(size))
            yield
        finally:
            os.close(handle)
            filler.unlink(missing_ok=True)  # another one may have been under way

    @contextmanager
    def _limited(self) -> Iterator[None]:
        pids = [pid for pid in map(self._crew.pid, self._world.loom_names) if pid]
        for pid in pids:
            _limit(pid, LIMITED_BYTES)
        try:
            yield
        finally:
            for pid in pids:
                _limit(pid, resource.RLIM_INFINITY)


def _limit(pid: int, size: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))


class Schedule:
    """Deeds spread evenly over the work: the n-th of N happens when n/N of the turns have ended."""

    def __init__(self, nemeses: Nemeses, deeds: list[str], *, seed: int, apart_s: float) -> None:
        """Args: apart_s: least time between two deeds."""
        self._nemeses, self._apart_s = nemeses, apart_s
        self._deeds = list(deeds)
        random.Random(f"schedule {seed}").shuffle(self._deeds)

    def run(self, progress: Callable[[], float], timeout_s: float) -> None:
        """Do them all, or as many as timeout_s leaves time for; returns when the last one is over.

        Args:
            progress: the share of the work that is done, 0-1.
        """
        deadline_s = time.monotonic() + timeout_s
        for n, deed in enumerate(self._deeds):
            while progress() < n / (len(self._deeds) + 1) and time.monotonic() < deadline_s:
                time.sleep(LOOK_S)
            if time.monotonic() >= deadline_s:
                break
            self._nemeses.do(deed)
            time.sleep(self._apart_s)
        self._nemeses.wait()
