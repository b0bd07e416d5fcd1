"""What clients notice of a broker that is gone or silent, and of a turn that kills whatever runs it."""

import signal
import time

from bench.crew import Crew
from bench.load import HELLO, warm_up
from bench.report import Report
from bench.scale import Scale
from bench.system import SCRIPTED

OUTAGE_S = 4.0
PAUSE_S = 0.02
"""Between two submits."""
ATTEMPTS = 3
"""Of a turn, unless LOOM_MAX_ATTEMPTS says otherwise."""


def measure(report: Report, _scale: Scale) -> None:
    """Submits while the broker is killed and while it is stopped; then a poison turn, and the one behind it."""
    with Crew(**SCRIPTED) as loom:
        warm_up(loom)
        for name, number in (("dead", signal.SIGKILL), ("silent", signal.SIGSTOP)):
            report.shares(
                f"submit to 202, broker {name}", _submits(loom, number), "ms", shares=(50, 99), model="scripted"
            )
    with Crew(**SCRIPTED, LOOM_CRASHPOINTS=f"turn.built*{ATTEMPTS}") as loom:
        _poison(report, loom)


def _submits(loom: Crew, number: signal.Signals) -> list[float]:
    """Milliseconds of each submit during an outage; afterwards all of them are answered."""
    client, ids, took_ms = loom.client(), [], []
    loom.send("valkey", number)
    over_s = time.monotonic() + OUTAGE_S
    while time.monotonic() < over_s:
        began_s = time.perf_counter()
        ids.append(client.submit(f"outage-{len(ids) % 50}", HELLO))
        took_ms.append((time.perf_counter() - began_s) * 1000)
        time.sleep(PAUSE_S)
    if number == signal.SIGSTOP:
        loom.send("valkey", signal.SIGCONT)
    loom.settle()
    for turn_id in ids:
        client.wait(turn_id)
    return took_ms


def _poison(report: Report, loom: Crew) -> None:
    client = loom.client()
    began_s = time.monotonic()
    poison, innocent = client.submit("poison", HELLO), client.submit("poison", HELLO)
    while client.get(f"/v1/turns/{poison}")[1]["status"] != "failed":
        loom.tend()
        time.sleep(PAUSE_S)
    report.add(f"a turn that kills its worker is given up after {ATTEMPTS} attempts", time.monotonic() - began_s, "s")
    client.wait(innocent)
    report.add("and the turn behind it is answered", time.monotonic() - began_s, "s", model="scripted")
