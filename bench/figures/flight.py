"""A thousand turns at once on these cores, with a model that takes its time: how long, and how much memory."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from bench.load import Ask, burst, hello, warm_up
from bench.model import model_server, question
from bench.processes import processes, pss_mib
from bench.report import Report
from bench.scale import Scale
from bench.system import SCRIPTED, System

MANY_THREADS = {"LOOM_WORKER_CONCURRENCY": "512"}
"""In each of two workers for turns."""
FEW = 20
"""Turns to warm up with: their threads stay, and would be missing from what a turn takes."""
LOOK_S = 0.5
SHORT_S, LONG_S = 1, 20
"""A second, as asked for; and long enough that all of the turns run at the same moment, for their memory."""

_RUNNING = "SELECT count(*) FROM turns WHERE status = 'in_progress'"


def measure(report: Report, scale: Scale) -> None:
    """With both models, and both of them once so slow that the memory of all turns is there at once."""
    for latency_s in (SHORT_S, LONG_S):
        environ = {**SCRIPTED, "LOOM_MODEL": f"scripted-demo+{latency_s * 1000}ms"}
        _fly(report, environ, turns=scale.wide_turns, latency_s=latency_s, model="scripted")
    for latency_s in (SHORT_S, LONG_S):
        with model_server(latency_s=latency_s) as server:
            _fly(report, server.environ, turns=scale.wide_turns, latency_s=latency_s, model="HTTP server", ask=question)


def _fly(report: Report, environ: dict[str, str], *, turns: int, latency_s: int, model: str, ask: Ask = hello) -> None:
    name = f"{turns} turns in flight, a model of {latency_s} s"
    # Their memory is that of all of them at once; how long a second's turns take is told with the default threads.
    threads = MANY_THREADS if latency_s == LONG_S else {}
    with System(**environ, **threads) as loom:
        warm_up(loom, FEW, ask=ask)
        before_mib = loom.memory_mib()
        with _watched(loom) as seen:
            done = burst(loom, turns, sessions=turns, prefix="flight", ask=lambda n: ask(FEW + n))
    running = {"most_at_once": seen.running, "submitted_s": round(done.submitted_s, 2)}
    report.add(f"{name}: first submit to last end", done.ended_s, "s", model=model, **running)
    if latency_s == LONG_S:
        figure = f"{name}, {seen.running} at the same moment: memory of each, in all processes"
        memory = {"before_mib": round(before_mib, 1), "peak_mib": round(seen.memory_mib, 1)}
        report.add(figure, (seen.memory_mib - before_mib) * 1024 / seen.running, "KiB (PSS)", model=model, **memory)


@dataclass
class _Seen:
    """The most that was seen at any look."""

    memory_mib: float = 0.0
    running: int = 0
    stop: threading.Event = field(default_factory=threading.Event)

    def look(self, loom: System, pids: tuple[int, ...]) -> None:
        while not self.stop.wait(LOOK_S):
            self.memory_mib = max(self.memory_mib, pss_mib(pids))
            self.running = max(self.running, int(str(loom.rows(_RUNNING)[0][0])))


@contextmanager
def _watched(loom: System) -> Iterator[_Seen]:
    seen = _Seen()
    watcher = threading.Thread(target=seen.look, args=(loom, tuple(processes(loom.home))))
    watcher.start()
    try:
        yield seen
    finally:
        seen.stop.set()
        watcher.join()
