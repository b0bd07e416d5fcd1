"""Measure Loom: `python -m bench [--only cpu,latency] [--quick]`. One JSON line a figure, then a table.

Every theme starts a Loom of its own on a home of its own, all on one machine in one run; beside some figures stands
their ratio to the same number of raw no-op Celery tasks on the same broker.
"""

import argparse
import signal
import sys
from collections.abc import Callable, Sequence

from bench.figures import (
    budget,
    cpu,
    footprint,
    latency,
    longsession,
    outage,
    peers,
    server,
    streams,
    throughput,
    tools,
    trace,
    workflows,
)
from bench.report import Report
from bench.scale import QUICK, Scale

FIGURES: dict[str, Callable[[Report, Scale], None]] = {
    "latency": latency.measure,
    "throughput": throughput.scripted,
    "http": throughput.over_http,
    "quiet": latency.quiet,
    "long": longsession.measure,
    "tools": tools.measure,
    "trace": trace.measure,
    "outage": outage.measure,
    "streams": streams.measure,
    "idle": footprint.idle,
    "disk": footprint.disk,
    "cpu": cpu.measure,
    "budget": budget.measure,
    "peers": peers.measure,
    "workflows": workflows.measure,
    "server": server.measure,
}
"""By the name that ``--only`` takes, in the order of a whole run."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is asked for; what was measured before a failure is printed all the same."""
    given = chosen(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # what was started is ended on the way out
    report = Report(is_quick=given.quick)
    report.machine()
    try:
        for name in given.only:
            report.begin(name)
            FIGURES[name](report, QUICK if given.quick else Scale())
    finally:
        if not given.json:
            report.table()
    if given.check and report.exceeded:
        sys.exit("above its ceiling (bench/ceilings.py):\n" + "\n".join(report.exceeded))


def chosen(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options; ``only`` holds each theme to measure once. Exits with 2 for a name that is none."""
    parser = argparse.ArgumentParser(prog="bench", description="Measure Loom.")
    parser.add_argument("--only", default=",".join(FIGURES), help=f"of {','.join(FIGURES)}")
    parser.add_argument("--quick", action="store_true", help="a look at the order of magnitude, in a few minutes")
    parser.add_argument("--json", action="store_true", help="JSON lines alone, no table")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a count of `budget` is above its ceiling")
    given = parser.parse_args(arguments)
    given.only = tuple(dict.fromkeys(name.strip() for name in given.only.split(",")))
    if unknown := [name for name in given.only if name not in FIGURES]:
        parser.error(f"no such figures: {', '.join(unknown)}; there are {', '.join(FIGURES)}")
    return given


if __name__ == "__main__":
    main()
