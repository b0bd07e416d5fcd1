"""A turn alone, in a session with a past: how long to the 202 and to its end; and how long behind a busy session."""

import os
import tempfile
import time
from pathlib import Path

from bench.load import BUSY, latencies, make_steady, quiet_wait_ms, warm_up
from bench.noop import noop_tasks
from bench.report import Report
from bench.scale import Scale
from bench.stats import percentile
from bench.system import SCRIPTED, System

SESSIONS = 50
PREFIX = "steady"


def measure(report: Report, scale: Scale) -> None:
    """With commits that survive a power cut, and with such that survive the death of processes."""
    report.add("raw fsync of this disk", fsyncs_per_s(), "/s")
    for sync in ("full", "normal"):
        with System(**SCRIPTED, LOOM_SQLITE_SYNC=sync) as loom:
            if sync == "full":
                report.add("`loom up` ready", loom.ready_s, "s")
                report.add("memory of all processes at start", loom.memory_mib(), "MiB (PSS)")
            _one_by_one(report, loom, scale, sync=sync)


def _one_by_one(report: Report, loom: System, scale: Scale, *, sync: str) -> None:
    make_steady(loom, sessions=SESSIONS, prefix=PREFIX, turns=scale.steady_turns)
    with noop_tasks(loom.home) as tasks:
        raw_ms = tasks.round_trips_ms(scale.latency_turns)
    accepted, ended = latencies(loom, scale.latency_turns, sessions=SESSIONS, prefix=PREFIX)
    for name, values in (("submit to 202", accepted), ("submit to end seen", ended)):
        for share in (50, 95):
            value = percentile(values, share)
            ratio = value / percentile(raw_ms, share)
            report.add(f"{name}, p{share}, sync {sync}", value, "ms", model="scripted", ratio=ratio)
    report.add(f"round trip of a no-op task beside it, p50, sync {sync}", percentile(raw_ms, 50), "ms")


def quiet(report: Report, _scale: Scale) -> None:
    """Fairness."""
    for sync in ("full", "normal"):
        with System(**SCRIPTED, LOOM_SQLITE_SYNC=sync) as loom:
            warm_up(loom)
            name = f"a quiet session's turn behind {BUSY} of a busy one, sync {sync}"
            report.add(name, quiet_wait_ms(loom), "ms", model="scripted")


def fsyncs_per_s() -> float:
    """How often this disk takes 4 kB for good in a second."""
    with tempfile.TemporaryDirectory() as folder:
        handle = os.open(Path(folder) / "probe", os.O_CREAT | os.O_WRONLY)
        began_s, count = time.perf_counter(), 0
        while time.perf_counter() - began_s < 1:
            os.write(handle, b"x" * 4096)
            os.fdatasync(handle)
            count += 1
        os.close(handle)
    return count / (time.perf_counter() - began_s)
