"""What 1,000 readers of event streams cost: how many are served, how late events come, and the others' requests."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from bench.client import Client
from bench.load import HELLO, latencies, warm_up
from bench.processes import cpu_ms_by_kind
from bench.report import Report
from bench.scale import Scale
from bench.system import SCRIPTED, System
from loom_worker.events.log import EventLog

READERS = 1_000
TURNS_A_SESSION = 50
PAUSE_S = 0.01
"""Between the requests of the client that is measured beside the readers."""


@dataclass(frozen=True)
class Crowd:
    """How the readers are spread over turns, and how often something is told."""

    turns: int
    events_per_s: int

    @property
    def readers(self) -> int:
        """Of each turn."""
        return READERS // self.turns


CROWDS = (Crowd(turns=1_000, events_per_s=200), Crowd(turns=50, events_per_s=50))


def measure(report: Report, scale: Scale) -> None:
    """Long polls, then a reader to each turn, then twenty to each; the turns wait in paused sessions meanwhile."""
    with System(**SCRIPTED) as loom:
        warm_up(loom)
        _polls(report, loom, scale.latency_turns)
        client = loom.client()
        for crowd in CROWDS:
            _crowd(report, loom, client, crowd, scale.stream_s)


def _polls(report: Report, loom: System, turns: int) -> None:
    """Each turn is waited for with one long poll."""
    before_ms = _web_ms(loom)
    _, ended_ms = latencies(loom, turns, sessions=20, prefix="polled")
    used_ms = _web_ms(loom) - before_ms
    report.shares("to the end as a long poll sees it", ended_ms, "ms", shares=(50, 95), model="scripted")
    report.add("CPU of the web, a turn submitted and polled", used_ms / turns, "ms", model="scripted")


def _crowd(report: Report, loom: System, client: Client, crowd: Crowd, for_s: float) -> None:
    name = f"{READERS} readers of {crowd.turns} turns"
    turn_ids = _queued_turns(client, crowd)
    paths = [f"/v1/turns/{turn_id}/events" for turn_id in turn_ids for _ in range(crowd.readers)]
    port = loom.url.rpartition(":")[2]
    command = [sys.executable, "-m", "bench.readers", port]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as readers:
        assert readers.stdin is not None
        assert readers.stdout is not None
        before_ms = _web_ms(loom)
        print(json.dumps(paths), file=readers.stdin, flush=True)
        statuses = json.loads(readers.stdout.readline())
        report.add(f"{name}: served", statuses.get("200", 0), "readers", statuses=statuses)
        report.add(f"{name}: CPU of the web, to open one", (_web_ms(loom) - before_ms) / READERS, "ms")
        before_ms = _web_ms(loom)
        time.sleep(for_s / 2)
        report.add(f"{name}: CPU of the web while nothing comes", (_web_ms(loom) - before_ms) / (for_s / 2), "ms/s")
        with _Beside(loom, turn_ids[0]) as beside:
            before_ms = _web_ms(loom)
            written = _write(loom, turn_ids, crowd.events_per_s, for_s)
            used_ms = _web_ms(loom) - before_ms
        readers.stdin.close()
        late_ms = json.loads(readers.stdout.readline())
    report.add(f"{name}: received", len(late_ms), "events", written=written * crowd.readers)
    report.shares(f"{name}: from writing an event to its reader", late_ms, "ms", shares=(50, 95, 99))
    report.shares(f"{name}: other requests meanwhile", beside.took_ms, "ms", shares=(50, 95))
    report.add(f"{name}: CPU of the web, {crowd.events_per_s} events/s and other requests", used_ms / for_s, "ms/s")


def _web_ms(loom: System) -> float:
    return cpu_ms_by_kind(loom.home)["web"]


def _queued_turns(client: Client, crowd: Crowd) -> Sequence[str]:
    """Turns that nobody runs."""
    sessions = [f"crowd-{crowd.turns}-{n}" for n in range(-(-crowd.turns // TURNS_A_SESSION))]
    for session in sessions:
        client.create(session)
        client.patch(session, status="paused")
    return [client.submit(sessions[n // TURNS_A_SESSION], HELLO) for n in range(crowd.turns)]


def _write(loom: System, turn_ids: Sequence[str], events_per_s: int, for_s: float) -> int:
    """Tell something of one turn after the other, evenly over the time; how many events that were."""
    redis = loom.redis()
    log = EventLog(redis)
    began_s, written = time.monotonic(), int(for_s * events_per_s)
    for n in range(written):
        time.sleep(max(0.0, began_s + n / events_per_s - time.monotonic()))
        log.append(turn_ids[n % len(turn_ids)], [("output_text.delta", {"text": str(time.monotonic_ns())})], least=0)
    time.sleep(1.0)  # for those that are late
    return written


class _Beside:
    """A client that reads and submits all the time, for ``with``."""

    def __init__(self, loom: System, turn_id: str) -> None:
        self.took_ms: list[float] = []
        self._client, self._turn_id = loom.client(), turn_id
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "_Beside":
        self._client.create("beside")
        self._client.patch("beside", status="paused")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        n = 0
        while not self._is_over.wait(PAUSE_S):
            n += 1
            began_s = time.perf_counter()
            if n % 20 == 0:
                self._client.submit("beside", HELLO)
            else:
                self._client.get(f"/v1/turns/{self._turn_id}" if n % 2 else "/v1/sessions?limit=5")
            self.took_ms.append((time.perf_counter() - began_s) * 1000)
