"""What strangers who hold thousands of connections cost the others: probes and turns beside them."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bench.load import HELLO, warm_up
from bench.report import Report
from bench.scale import Scale
from bench.system import SCRIPTED, System

SOCKETS = 5_000
SOURCES = ("127.0.0.1", "127.0.0.2")
"""Where the attack comes from: the address of the one who is measured, and another one."""
SESSIONS = 20


def measure(report: Report, scale: Scale) -> None:
    """Without an attack, then with one from each address; the measured client connects anew for each request."""
    with System(**SCRIPTED) as loom:
        warm_up(loom)
        _beside(report, loom, scale.latency_turns, "without an attack")
        for source in SOURCES:
            with attack(int(loom.url.rpartition(":")[2]), source):
                from_where = "its own address" if source == SOURCES[0] else "another address"
                _beside(
                    report, loom, scale.latency_turns, f"beside {SOCKETS} idle and dripping sockets of {from_where}"
                )


@contextmanager
def attack(port: int, source: str) -> Iterator[None]:
    """SOCKETS of another process, all of them open when this begins, and opened anew when the server closes them."""
    command = [sys.executable, "-m", "bench.attack", str(port), source, str(SOCKETS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        try:
            yield
        finally:
            process.stdin.close()


def _beside(report: Report, loom: System, count: int, when: str) -> None:
    def probe(_: int) -> None:
        assert loom.client().get("/healthz")[0] == 200

    def turn(number: int) -> None:
        client = loom.client()
        client.wait(client.submit(f"beside-{number % SESSIONS}", HELLO))

    report.shares(f"GET /healthz {when}", _taken_ms(count, probe), "ms", shares=(50, 95))
    report.shares(f"submit to end seen {when}", _taken_ms(count, turn), "ms", shares=(50, 95), model="scripted")


def _taken_ms(count: int, ask: Callable[[int], None]) -> list[float]:
    taken = []
    for number in range(count):
        began_s = time.perf_counter()
        ask(number)
        taken.append((time.perf_counter() - began_s) * 1000)
    return taken
