"""Measure a running Loom: `python -m bench.run [--turns 300]`. One JSON line a figure, then a table.

Every figure is taken on one machine in one run, with the demo model (no network, 0 ms), which answers in one call;
beside it stands its ratio to the same number of raw no-op Celery tasks on the same broker.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from bench import noop
from bench.system import System

QUESTION = "Hello, who are you?"
SESSIONS, BURST, BUSY = 50, 500, 60


class Report:
    """Prints figures as they come, and all of them in the end."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str, str]] = []

    def add(self, name: str, value: float, unit: str, *, ratio: float | None = None, **more: object) -> None:
        """Add one figure; ratio: to the raw Celery tasks."""
        line = {"figure": name, "value": round(value, 3), "unit": unit, **more}
        if ratio is not None:
            line["ratio_to_noop_celery"] = round(ratio, 2)
        print(json.dumps(line), flush=True)
        self.rows.append((name, f"{value:.1f} {unit}", "" if ratio is None else f"{ratio:.2f}"))

    def table(self) -> None:
        """Print all figures as a Markdown table."""
        print("\n| figure | value | ratio to no-op Celery tasks |\n| --- | --- | --- |")
        for row in self.rows:
            print("| " + " | ".join(row) + " |")


def main() -> None:
    """Measure everything with durable commits, and the throughput without."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=300, help="turns of the latency figures")
    turns = parser.parse_args().turns
    report = Report()
    report.add("raw fsync of this disk", fsyncs_per_s(), "/s")
    for sync in ("full", "normal"):
        with System(LOOM_PROVIDER="scripted", LOOM_SQLITE_SYNC=sync) as system:
            if sync == "full":
                report.add("`loom up` ready", system.ready_s, "s")
                report.add("memory of all processes", sum(system.memory_mib().values()), "MiB (PSS)")
            measure(system, report, sync=sync, turns=turns)
    report.table()


def measure(system: System, report: Report, *, sync: str, turns: int) -> None:
    """All figures of one setting of LOOM_SQLITE_SYNC."""
    warm_up(system)
    with noop_worker(system) as (round_trips, burst):
        raw = [seconds * 1000 for seconds in round_trips(turns)]
        raw_rate = BURST / burst(BURST)
    accepted, ended = latencies(system, turns)
    for name, values in (("submit to 202", accepted), ("submit to end seen", ended)):
        for share in (50, 95):
            ratio = percentile(values, share) / percentile(raw, share)
            report.add(f"{name}, p{share}, sync {sync}", percentile(values, share), "ms", ratio=ratio)
    rate = BURST / throughput(system)
    report.add(f"{BURST} turns over {SESSIONS} sessions, sync {sync}", rate, "turns/s", ratio=rate / raw_rate)
    report.add("raw no-op tasks", raw_rate, "tasks/s", round_trip_p50_ms=round(percentile(raw, 50), 2))
    waits = [quiet_wait(system, n) for n in range(5)]
    report.add(f"a quiet session's turn behind {BUSY} of a busy one, sync {sync}", statistics.median(waits), "ms")


def latencies(system: System, turns: int) -> tuple[list[float], list[float]]:
    """Milliseconds to the 202, and to the end of the turn as a client sees it; one turn after the other."""
    client = system.client()
    accepted, ended = [], []
    for n in range(turns):
        began_s = time.perf_counter()
        turn_id = client.submit(f"latency-{n % SESSIONS}", QUESTION)
        accepted.append((time.perf_counter() - began_s) * 1000)
        client.wait(turn_id)
        ended.append((time.perf_counter() - began_s) * 1000)
    return accepted, ended


def throughput(system: System) -> float:
    """Seconds for BURST turns over SESSIONS sessions, from the first submit to the last end."""
    clients = 4
    last: list[str] = []

    def submit(part: int) -> None:
        client = system.client()
        for n in range(part, BURST, clients):
            turn_id = client.submit(f"burst-{n % SESSIONS}", QUESTION)
            if n >= BURST - SESSIONS:
                last.append(turn_id)

    began_s = time.perf_counter()
    threads = [threading.Thread(target=submit, args=(part,)) for part in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    client = system.client()
    for turn_id in last:
        client.wait(turn_id)
    return time.perf_counter() - began_s


def quiet_wait(system: System, n: int) -> float:
    """Milliseconds of a quiet session's turn that comes behind BUSY turns of a busy one."""
    client = system.client()
    busy = [client.submit(f"busy-{n}", QUESTION) for _ in range(BUSY)]
    began_s = time.perf_counter()
    client.wait(client.submit(f"quiet-{n}", QUESTION))
    waited_ms = (time.perf_counter() - began_s) * 1000
    client.wait(busy[-1])
    return waited_ms


def warm_up(system: System) -> None:
    """Let every worker load what it needs."""
    client = system.client()
    ids = [client.submit(f"warm-{n}", QUESTION) for n in range(100)]
    for turn_id in ids:
        client.wait(turn_id)


class noop_worker:  # noqa: N801  # used as a function: with noop_worker(system) as (round_trips, burst)
    """A worker of raw no-op tasks on the system's own broker."""

    def __init__(self, system: System) -> None:
        self._socket = str(system.home / "valkey.sock")

    def __enter__(self) -> tuple[Callable[[int], list[float]], Callable[[int], float]]:
        command = [sys.executable, "-m", "bench.noop", self._socket]
        self._worker = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        app, client = noop.connected(self._socket)
        noop.round_trips(app, client, 50)
        return lambda count: noop.round_trips(app, client, count), lambda count: noop.burst(app, client, count)

    def __exit__(self, *_: object) -> None:
        self._worker.terminate()
        self._worker.wait(20)


def percentile(values: list[float], share: int) -> float:
    """The value that share percent are not above."""
    return sorted(values)[min(len(values) - 1, len(values) * share // 100)]


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


if __name__ == "__main__":
    main()
