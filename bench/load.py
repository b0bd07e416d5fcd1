"""Asking for turns: one after the other, or as many as it goes."""

import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from bench.system import Running

CLIENTS = 4
"""Connections that submit at the same time."""
HELLO = "It is raining here."
"""The scripted model answers this in one call, without a tool."""
BUSY = 60
LOOK_S = 0.02
PATIENCE_S = 600.0

_UNFINISHED = "SELECT 1 FROM turns WHERE status IN ('queued', 'in_progress', 'requires_action') LIMIT 1"
_FAILED = "SELECT status, reason, count(*) FROM turns WHERE status != 'completed' GROUP BY 1, 2"

Ask = Callable[[int], str]
"""The n-th question."""


def hello(_n: int) -> str:
    """A plain question."""
    return HELLO


@dataclass(frozen=True)
class Burst:
    """How long many turns took, from the first submit."""

    turns: int
    submitted_s: float
    """Until the last one was accepted."""
    ended_s: float
    """Until the last one had ended, to within LOOK_S."""

    @property
    def per_s(self) -> float:
        """Turns a second."""
        return self.turns / self.ended_s


def burst(loom: Running, turns: int, *, sessions: int, prefix: str = "burst", ask: Ask = hello) -> Burst:
    """Submit as fast as CLIENTS connections can, and wait until nothing is left unfinished."""
    began_s = time.perf_counter()
    submit_all(loom, turns, sessions=sessions, prefix=prefix, ask=ask)
    submitted_s = time.perf_counter() - began_s
    until_idle(loom)
    return Burst(turns, submitted_s, time.perf_counter() - began_s)


def submit_all(loom: Running, turns: int, *, sessions: int, prefix: str, ask: Ask = hello) -> None:
    """Submit as fast as CLIENTS connections can."""

    def submit(part: int) -> None:
        client = loom.client()
        for n in range(part, turns, CLIENTS):
            client.submit(f"{prefix}-{n % sessions}", ask(n))

    threads = [threading.Thread(target=submit, args=(part,)) for part in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def until_idle(loom: Running) -> None:
    """Wait until no turn is unfinished; all must have completed.

    The database is looked into, for thousands of long polls would be a load of their own.
    """
    deadline_s = time.monotonic() + PATIENCE_S
    while loom.rows(_UNFINISHED):
        if time.monotonic() > deadline_s:
            raise SystemExit(f"turns are unfinished after {PATIENCE_S:g} s")
        time.sleep(LOOK_S)
    if failed := loom.rows(_FAILED):
        raise SystemExit(f"turns did not complete: {failed}")


def warm_up(loom: Running, turns: int = 100, *, ask: Ask = hello) -> None:
    """Let every worker load what it needs."""
    burst(loom, turns, sessions=turns, prefix="warm", ask=ask)


def make_steady(loom: Running, *, sessions: int, prefix: str, turns: int, ask: Ask = hello) -> None:
    """Give each session a past of so many turns, which warms every worker too.

    In a session with 30 turns behind it a turn costs 1.4 to 1.6 times as much as in a new one.
    """
    burst(loom, turns * sessions, sessions=sessions, prefix=prefix, ask=ask)


def latencies(
    loom: Running, turns: int, *, sessions: int, prefix: str = "alone", ask: Ask = hello
) -> tuple[list[float], list[float]]:
    """Milliseconds to the 202, and to the end of the turn as a client sees it; one turn after the other."""
    client = loom.client()
    accepted, ended = [], []
    for n in range(turns):
        began_s = time.perf_counter()
        turn_id = client.submit(f"{prefix}-{n % sessions}", ask(n))
        accepted.append((time.perf_counter() - began_s) * 1000)
        client.wait(turn_id)
        ended.append((time.perf_counter() - began_s) * 1000)
    return accepted, ended


def quiet_wait_ms(loom: Running, rounds: int = 5) -> float:
    """How long a quiet session's turn takes that comes behind BUSY turns of a busy one; the median of some."""
    client = loom.client()
    waits = []
    for n in range(rounds):
        busy = [client.submit(f"busy-{n}", HELLO) for _ in range(BUSY)]
        began_s = time.perf_counter()
        client.wait(client.submit(f"quiet-{n}", HELLO))
        waits.append((time.perf_counter() - began_s) * 1000)
        client.wait(busy[-1])
    return statistics.median(waits)
