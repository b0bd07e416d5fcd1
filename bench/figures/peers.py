"""The same work on Loom and on others, one system after the other: a turn of a session that has 30 behind it.

A turn appends the user's message and an answer to the session; turns of a session run in order, and none is
acknowledged before it is durable (but for Celery alone, which promises nothing). The client is httpx2 for all of them.
"""

import json
import multiprocessing
import os
import resource
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial

import httpx2

from bench.load import HELLO
from bench.peers import celery, dbos, loom, restate
from bench.peers.peer import Http, NotInstalled, Peer
from bench.report import Report
from bench.scale import Scale
from bench.stats import percentile, short

SESSIONS = 50
CLIENTS, CLIENT_PROCESSES = 25, 5
"""That ask at the same time in a burst, two sessions each, and the processes they run in: one Python process can ask
for 300 turns a second at most."""
LOOM = "Loom"
PEERS: Mapping[str, Callable[[], AbstractContextManager[Peer]]] = {
    "Celery alone": celery.running,
    LOOM: loom.running,
    "Restate": restate.running,
    "DBOS, looking every 10 ms": partial(dbos.running, poll_s=0.01),
    "DBOS, looking every 50 ms": partial(dbos.running, poll_s=0.05),
}
HEAD = (
    "| system | end seen, p50 | p95 | turns/s | processor ms a turn | load of the machine "
    "| Loom to it: end seen | turns/s | processor |\n|" + " --- |" * 9
)


@dataclass(frozen=True)
class Measured:
    """Of one system."""

    p50_ms: float
    p95_ms: float
    per_s: float
    cpu_ms: float
    """A turn of the burst."""
    client_ms: float
    """Of the clients, which use the same cores."""
    loads: tuple[float, float] = (0.0, 0.0)
    """Over the last minute, before the system was started and after the burst: it must be much the same for all."""


def measure(report: Report, scale: Scale) -> None:
    """Each system that is installed; of the others it is said how to install them."""
    found: dict[str, Measured] = {}
    try:
        for name, running in PEERS.items():
            _measure_one(report, scale, name, running, found)
    finally:
        report.append_table(table(found))


def _measure_one(
    report: Report,
    scale: Scale,
    name: str,
    running: Callable[[], AbstractContextManager[Peer]],
    found: dict[str, Measured],
) -> None:
    load = os.getloadavg()[0]
    try:
        with running() as peer:
            its = measured(peer, scale)
            found[name] = replace(its, loads=(load, os.getloadavg()[0]))
            _tell(report, name, found[name], versions=peer.versions)
    except NotInstalled as missing:
        print(json.dumps({"left out": name, "why": str(missing)}), flush=True)


def measured(peer: Peer, scale: Scale) -> Measured:
    """One turn after the other by one client, then as many as it goes by CLIENTS."""
    burst(peer, scale.steady_turns * SESSIONS)
    ended_ms = alone(peer, scale.latency_turns)
    before_ms = peer.cpu_ms()
    per_s, client_ms = burst(peer, scale.peer_turns)
    used_ms = (peer.cpu_ms() - before_ms) / scale.peer_turns
    return Measured(percentile(ended_ms, 50), percentile(ended_ms, 95), per_s, used_ms, client_ms)


def alone(peer: Peer, turns: int) -> list[float]:
    """Milliseconds from submit to the end seen, over all sessions in turn."""
    taken = []
    with httpx2.Client(timeout=120) as http:
        for n in range(turns):
            began_s = time.perf_counter()
            _turn(peer, http, n % SESSIONS)
            taken.append((time.perf_counter() - began_s) * 1000)
    return taken


def burst(peer: Peer, turns: int) -> tuple[float, float]:
    """Turns a second, and the clients' processor milliseconds for each.

    A client waits for the end of its turn before it asks for the next one; no two ask in the same session.
    """
    forked = multiprocessing.get_context("fork")
    asking = [forked.Process(target=_ask, args=(peer, turns, number)) for number in range(CLIENT_PROCESSES)]
    began_s, before_s = time.perf_counter(), _children_cpu_s()
    for process in asking:
        process.start()
    for process in asking:
        process.join()
    took_s = time.perf_counter() - began_s
    if any(process.exitcode for process in asking):
        raise SystemExit(f"{peer.name}: clients failed")
    return turns / took_s, (_children_cpu_s() - before_s) * 1000 / turns


def _ask(peer: Peer, turns: int, number: int) -> None:
    """Be one of the processes: a share of the clients, each a thread with a connection of its own."""
    failed: list[BaseException] = []

    def ask(client: int) -> None:
        own = range(client, SESSIONS, CLIENTS)
        try:
            with httpx2.Client(timeout=120) as http:
                for n in range(client, turns, CLIENTS):
                    _turn(peer, http, own[n // CLIENTS % len(own)])
        except BaseException as error:
            failed.append(error)  # raised below, so that the process fails

    threads = [threading.Thread(target=ask, args=(client,)) for client in range(number, CLIENTS, CLIENT_PROCESSES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _turn(peer: Peer, http: Http, session: int) -> None:
    peer.wait(http, peer.submit(http, f"s{session}", HELLO))


def table(found: Mapping[str, Measured]) -> str:
    """A row for each system, with the ratios of Loom to it."""
    rows = [HEAD]
    for name, its in found.items():
        cells = [f"{short(its.p50_ms)} ms", f"{short(its.p95_ms)} ms", short(its.per_s), short(its.cpu_ms)]
        cells.append(" to ".join(f"{load:.1f}" for load in its.loads))
        ours = found.get(LOOM)
        if ours is None or name == LOOM:
            cells += [""] * 3
        else:
            pairs = ((ours.p50_ms, its.p50_ms), (ours.per_s, its.per_s), (ours.cpu_ms, its.cpu_ms))
            cells += [short(own / other) for own, other in pairs]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(rows)


def _tell(report: Report, name: str, its: Measured, *, versions: str) -> None:
    more: dict[str, object] = {"loads": [round(load, 2) for load in its.loads], "versions": versions}
    report.line(f"{name}: submit to end seen, p50", its.p50_ms, "ms", **more)
    report.line(f"{name}: submit to end seen, p95", its.p95_ms, "ms", **more)
    more["client_ms"] = round(its.client_ms, 2)
    report.line(f"{name}: turns over {SESSIONS} sessions, {CLIENTS} clients", its.per_s, "turns/s", **more)
    report.line(f"{name}: processor time of a turn meanwhile, all its processes", its.cpu_ms, "ms", **more)
