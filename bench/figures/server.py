"""The store on a PostgreSQL server beside SQLite's file, in one run: whole systems, and writers on a slow disk."""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from bench.load import burst, latencies, make_steady, submit_all, until_idle, warm_up
from bench.report import Report
from bench.scale import Scale
from bench.stats import percentile
from bench.system import SCRIPTED, System
from loom_worker.core.settings import from_env
from loom_worker.store.prepare import prepare
from tests.support import store_postgres
from tests.support.postgres import Postgres, postgres_folder
from tests.support.until import until

SESSIONS, ROUNDS = 50, 5
PROCESSES = 2
SLOW_MS = (5, 20, 50)
IN_HAND = 300
"""Turns submitted before the server dies; they come faster than they end."""
AWAY_S = 5.0
"""For so long the server is dead."""
DURABLE = {"fsync": "on", "full_page_writes": "on", "autovacuum": "on"}


def measure(report: Report, scale: Scale) -> None:
    """Two whole systems, then writers alone; nothing, if PostgreSQL is not installed."""
    programs = postgres_folder()
    if programs is None:
        print(
            "PostgreSQL is not installed (Debian: apt install postgresql): nothing is measured on it", file=sys.stderr
        )
        return
    with Postgres(programs, **DURABLE) as server:
        _whole(report, scale, server)
    for slow_ms in SLOW_MS:
        _slow(report, scale, slow_ms)


def _whole(report: Report, scale: Scale, server: Postgres) -> None:
    """Bursts on both systems in turns: what else the machine does meets both."""
    with ExitStack() as stack:
        file = stack.enter_context(System(**SCRIPTED))
        on_server = stack.enter_context(System(**SCRIPTED, LOOM_DATABASE_URL=store_postgres.another(server.store_url)))
        both = {"SQLite": file, "PostgreSQL": on_server}
        for loom in both.values():
            warm_up(loom)
            make_steady(loom, sessions=SESSIONS, prefix="s", turns=scale.steady_turns)
        rates: dict[str, list[float]] = {name: [] for name in both}
        ended: dict[str, list[float]] = {name: [] for name in both}
        for _ in range(ROUNDS):
            for name, loom in both.items():
                rates[name].append(burst(loom, scale.burst_turns, sessions=SESSIONS, prefix="s").per_s)
                ended[name] += latencies(loom, scale.latency_turns // ROUNDS, sessions=SESSIONS, prefix="s")[1]
        back_s = [_back(on_server, server) for _ in range(ROUNDS)]
    ratio = statistics.median(b / a for a, b in zip(*rates.values(), strict=True))
    for name in both:
        report.add(
            f"{scale.burst_turns} turns over {SESSIONS} sessions, {name}", statistics.median(rates[name]), "turns/s"
        )
        for share in (50, 95):
            report.add(f"submit to end seen, p{share}, {name}", percentile(ended[name], share), "ms")
    report.add("turns/s on PostgreSQL to those on SQLite, median of rounds", ratio, "")
    report.add("a killed server is back, to the first turn's end, median", statistics.median(back_s), "s")
    report.add("the same, longest", max(back_s), "s")


def _back(loom: System, server: Postgres) -> float:
    """Seconds from the return of a server that was killed among many turns to the first one's end."""
    submit_all(loom, IN_HAND, sessions=SESSIONS, prefix="s")
    server.crash()
    time.sleep(AWAY_S)
    server.restart()
    began_s = time.time()
    query = "SELECT count(*) FROM turns WHERE completed_ms IS NULL"
    left = loom.rows(query)
    until(lambda: loom.rows(query) < left, 60, "a turn ends")
    taken_s = time.time() - began_s
    until_idle(loom)
    return taken_s


def _slow(report: Report, scale: Scale, slow_ms: int) -> None:
    """Turns of two processes with eight threads each, all in one workspace."""
    rates = {}
    for name, made in (("SQLite", _file), ("PostgreSQL", _server)):
        with made(slow_ms) as url:
            rates[name] = _written(url, scale.writers_s, slow_ms)
    for name, rate in rates.items():
        report.add(f"2 x 8 writers in one workspace, commits of {slow_ms} ms, {name}", rate, "turns/s")
    report.add(f"the same, PostgreSQL to SQLite, commits of {slow_ms} ms", rates["PostgreSQL"] / rates["SQLite"], "")


def _written(url: str, seconds: float, slow_ms: int) -> float:
    """Turns a second of all processes together."""
    commands = [
        [sys.executable, "-m", "bench.writers", url, str(seconds), str(slow_ms), f"p{n}"] for n in range(PROCESSES)
    ]
    with ExitStack() as stack:
        crew = [
            stack.enter_context(subprocess.Popen(each, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            for each in commands
        ]
        for each in crew:
            assert each.stdout is not None
            each.stdout.readline()  # it is ready
        for each in crew:
            assert each.stdin is not None
            each.stdin.write("\n")
            each.stdin.flush()
        return sum(int(each.communicate()[0]) for each in crew) / seconds


@contextmanager
def _file(_slow_ms: int) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as home:
        settings = from_env({"LOOM_HOME": home})
        prepare(settings)
        yield settings.database_url


@contextmanager
def _server(slow_ms: int) -> Iterator[str]:
    """One that waits so long before it flushes its log, whoever else commits."""
    programs = postgres_folder()
    assert programs is not None
    with Postgres(programs, **DURABLE, commit_delay=str(slow_ms * 1000), commit_siblings="0") as server:
        yield store_postgres.made(server)
