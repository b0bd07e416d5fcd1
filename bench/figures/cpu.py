"""Processor time of a turn, by kind of process: what to look at before anything is made faster."""

import time

from bench.load import burst, make_steady
from bench.processes import cpu_ms_by_kind
from bench.report import Report
from bench.scale import Scale
from bench.system import SCRIPTED, System

SESSIONS = 50
PREFIX = "steady"


def measure(report: Report, scale: Scale) -> None:
    """At full load, in steady sessions."""
    with System(**SCRIPTED) as loom:
        make_steady(loom, sessions=SESSIONS, prefix=PREFIX, turns=scale.steady_turns)
        before, client_before_s = cpu_ms_by_kind(loom.home), time.process_time()
        done = burst(loom, scale.burst_turns, sessions=SESSIONS, prefix=PREFIX)
        after, client_s = cpu_ms_by_kind(loom.home), time.process_time() - client_before_s
    used = {kind: (after[kind] - before.get(kind, 0.0)) / done.turns for kind in after}
    report.add("CPU of a turn, all processes of Loom", sum(used.values()), "ms", model="scripted")
    for kind, each_ms in sorted(used.items(), key=lambda item: -item[1]):
        report.add(f"CPU of a turn, {kind}", each_ms, "ms", model="scripted")
    report.add("CPU of a turn, the measuring client", client_s * 1000 / done.turns, "ms", model="scripted")
    report.add(f"{done.turns} turns over {SESSIONS} steady sessions meanwhile", done.per_s, "turns/s", model="scripted")
