"""What export of traces costs turns: to a collector that answers, to a dead port, and to one that never answers.

Four systems run side by side and are loaded in turn, so that whatever else the machine does meets all of them alike.
"""

import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from bench.load import burst, latencies, warm_up
from bench.processes import cpu_ms_by_kind
from bench.report import Report
from bench.scale import Scale
from bench.stats import percentile
from bench.system import SCRIPTED, System
from tests.chaos import collector
from tests.support.webhook_receiver import unused_port

SESSIONS = 50
DRAIN_S = 120.0
LOOK_S = 0.05
OFF, FAST, DEAD, HANGING = "off", "to a collector", "to a dead port", "to a collector that hangs"
_WAITING = "SELECT count(*) FROM trace_outbox"


def measure(report: Report, scale: Scale) -> None:
    """Bursts and single turns, in rounds in which every system has its turn."""
    with contextlib.ExitStack() as opened:
        log = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="loom-bench-traces-"))) / "taken.jsonl"
        answering, hanging = opened.enter_context(_collector(log)), opened.enter_context(_collector(log, "hang"))
        endpoints = {OFF: "", FAST: answering, DEAD: f"http://127.0.0.1:{unused_port()}", HANGING: hanging}
        looms = {name: opened.enter_context(_system(url)) for name, url in endpoints.items()}
        for loom in looms.values():
            warm_up(loom)
        drained_s = _drain(looms[FAST])
        per_s: dict[str, list[float]] = {name: [] for name in looms}
        cpu_ms = {name: _Cpu(loom.home) for name, loom in looms.items()}
        ended_ms: dict[str, list[float]] = {name: [] for name in looms}
        for n in range(scale.trace_rounds):
            for name, loom in looms.items():
                with cpu_ms[name]:
                    per_s[name].append(burst(loom, scale.trace_turns, sessions=SESSIONS, prefix=f"burst-{n}").per_s)
                    drained_s = max(drained_s, _drain(loom) if name == FAST else 0.0)
                ended_ms[name] += latencies(loom, scale.trace_turns // 5, sessions=SESSIONS, prefix=f"one-{n}")[1]
        _tell(report, per_s, ended_ms)
        for name, used in cpu_ms.items():
            for kind in ("turn workers", "tool worker"):
                each_ms = used.ms[kind] / scale.trace_turns / scale.trace_rounds
                report.add(f"export {name}, CPU of a turn, {kind}", each_ms, "ms", model="scripted")
        spans = [len(export.spans) for export in collector.read(log)]
        report.add("requests to the collector", len(spans), "", spans=sum(spans))
        report.add(f"until it has all of a burst of {scale.trace_turns} turns, at most", drained_s, "s")


class _Cpu:
    """Processor time that the processes of a home take within ``with``, by kind."""

    def __init__(self, home: Path) -> None:
        self.ms: Counter[str] = Counter()
        self._home = home

    def __enter__(self) -> None:
        self.ms.subtract(cpu_ms_by_kind(self._home))

    def __exit__(self, *_: object) -> None:
        self.ms.update(cpu_ms_by_kind(self._home))


def _tell(report: Report, per_s: Mapping[str, list[float]], ended_ms: Mapping[str, list[float]]) -> None:
    for name, values in per_s.items():
        report.add(f"export {name}", statistics.median(values), "turns/s", model="scripted", rounds=len(values))
        if name != OFF:
            ratio = statistics.median(one / off for one, off in zip(values, per_s[OFF], strict=True))
            report.add(f"export {name}, turns/s to those without, expected > 0.98", ratio, "")
    for name, values in ended_ms.items():
        for share in (50, 99):
            report.add(f"export {name}, a turn, p{share}", percentile(values, share), "ms", model="scripted")


def _system(endpoint: str) -> System:
    return System(**SCRIPTED, **({"LOOM_TRACE_ENDPOINT": endpoint} if endpoint else {}))


def _drain(loom: System) -> float:
    """Seconds until nothing waits any more."""
    began_s = time.monotonic()
    while loom.rows(_WAITING) != [(0,)]:
        if time.monotonic() - began_s > DRAIN_S:
            raise SystemExit(f"traces wait after {DRAIN_S:g} s")
        time.sleep(LOOK_S)
    return time.monotonic() - began_s


@contextlib.contextmanager
def _collector(log: Path, mode: str = "") -> Iterator[str]:
    """Its URL; a process, so that it does not share an interpreter with what asks for turns."""
    command = [sys.executable, "-m", "tests.chaos.collector", "--log", str(log), *(("--mode", mode) if mode else ())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()
