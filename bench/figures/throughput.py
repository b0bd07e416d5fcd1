"""Turns a second, over few and many sessions, with models of 0 ms, 5 ms and a second; over HTTP also one by one.

The few have a past of many turns each; the many are new, so each of their turns makes a session.
"""

from contextlib import closing
from pathlib import Path

from bench.load import Ask, Burst, burst, hello, latencies, make_steady, warm_up
from bench.model import model_server, question
from bench.noop import noop_tasks
from bench.report import Report
from bench.scale import Scale
from bench.stats import percentile
from bench.system import SCRIPTED, Running, System
from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.sessions import NewSession
from loom_worker.store import sessions as session_rows
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE

FEW, MANY = 50, 1000
LATENCIES_MS = (0, 5, 1000)
THREADS = 256
"""For turns in two workers, by default: a bound where the model is slow."""
NOOP_TASKS = 500
PAST = 5_000
"""Between the number of a measured question and those of the past: equal numbers are the same turn to the model."""
ALONE = 50_000
"""The number of the first question that is asked alone."""


def scripted(report: Report, scale: Scale) -> None:
    """The model in the worker, which costs next to nothing."""
    with System(**SCRIPTED) as loom:
        warm_up(loom)
        with noop_tasks(loom.home) as tasks:
            raw_per_s = tasks.per_s(NOOP_TASKS)
        report.add("raw no-op tasks", raw_per_s, "tasks/s")
        for latency_ms in LATENCIES_MS:
            for sessions in (FEW, MANY):
                prefix = f"{sessions}x{latency_ms}ms"
                make_sessions(loom.home, prefix, sessions, model=f"scripted-demo+{latency_ms}ms")
                steady(loom, scale, sessions=sessions, prefix=prefix)
                done = burst(loom, turns(scale, sessions, latency_ms), sessions=sessions, prefix=prefix)
                add(report, done, sessions=sessions, latency_ms=latency_ms, model="scripted", raw_per_s=raw_per_s)


def over_http(report: Report, scale: Scale) -> None:
    """The model behind HTTP, asked through the provider's SDK; its server uses the same cores."""
    with model_server() as server, System(**server.environ) as loom:
        warm_up(loom, ask=lambda n: question(n))
        _one_by_one(report, loom, scale)
        for place, latency_ms in enumerate(LATENCIES_MS):
            for sessions in (FEW, MANY):
                prefix = f"{sessions}x{latency_ms}ms"
                first = 10_000 * (place + 1) + sessions
                steady(loom, scale, sessions=sessions, prefix=prefix, ask=_asking(first + PAST, latency_ms))
                ask = _asking(first, latency_ms)
                done = burst(loom, turns(scale, sessions, latency_ms), sessions=sessions, prefix=prefix, ask=ask)
                add(report, done, sessions=sessions, latency_ms=latency_ms, model="HTTP server")


def _one_by_one(report: Report, loom: Running, scale: Scale) -> None:
    """Turns that nobody competes with."""
    steady(loom, scale, sessions=FEW, prefix="alone", ask=_asking(ALONE + PAST, 0))
    _, ended = latencies(loom, scale.latency_turns, sessions=FEW, prefix="alone", ask=_asking(ALONE, 0))
    for share in (50, 95):
        name = f"submit to end seen, p{share}, a model of 0 ms"
        report.add(name, percentile(ended, share), "ms", model="HTTP server")


def make_sessions(home: Path, prefix: str, count: int, *, model: str) -> None:
    """Sessions ``<prefix>-0``, ``<prefix>-1`` … with a model of their own, written beside the running Loom."""
    with (
        closing(Database(f"sqlite:///{home / 'loom.db'}", sync="normal")) as database,
        database.write(lock=WHOLE) as tx,
    ):
        for n in range(count):
            new = NewSession(id=f"{prefix}-{n}", agent="default", model=model)
            session_rows.add(tx, "default", new, now_ms=now_ms())


def steady(loom: Running, scale: Scale, *, sessions: int, prefix: str, ask: Ask = hello) -> None:
    """Give a past to each session, if they are few."""
    if sessions == FEW:
        make_steady(loom, sessions=sessions, prefix=prefix, turns=scale.steady_turns, ask=ask)


def turns(scale: Scale, sessions: int, latency_ms: int) -> int:
    """How many to measure with."""
    if sessions == MANY:
        return scale.wide_turns
    return scale.slow_turns if latency_ms == max(LATENCIES_MS) else scale.burst_turns


def add(
    report: Report, done: Burst, *, sessions: int, latency_ms: int, model: str, raw_per_s: float | None = None
) -> None:
    """One figure, with the most that so many sessions, threads and so slow a model allow."""
    bound = min(sessions, done.turns, THREADS) * 1000 / latency_ms if latency_ms else None
    age = "steady" if sessions == FEW else "new"
    report.add(
        f"{done.turns} turns over {min(sessions, done.turns)} {age} sessions, a model of {latency_ms} ms",
        done.per_s,
        "turns/s",
        model=model,
        ratio=None if raw_per_s is None or latency_ms else done.per_s / raw_per_s,
        bound_by_threads_and_model_per_s=bound,
        submitted_s=round(done.submitted_s, 2),
    )


def _asking(first: int, latency_ms: int) -> Ask:
    return lambda n: question(first + n, f"wait={latency_ms / 1000}")
