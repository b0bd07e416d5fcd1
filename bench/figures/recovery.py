"""A worker is killed while its turns stream: how long until another one has them, and until they have ended."""

import time
from dataclasses import dataclass, field

from bench.crew import Crew
from bench.model import model_server, question
from bench.report import Report
from bench.scale import Scale

TURNS = 4
"""That stream at the moment of each kill."""
STREAM_S = 2.0
"""Of each reply."""
PATIENCE_S = 60.0
LOOK_S = 0.01


@dataclass
class Spans:
    """Seconds since the kill, of all turns whose worker was killed."""

    claimed_s: list[float] = field(default_factory=list)
    ended_s: list[float] = field(default_factory=list)


def measure(report: Report, scale: Scale) -> None:
    """Kill by kill; each time all workers are alive again before the next."""
    spans = Spans()
    with model_server() as server, Crew(**server.environ) as loom:
        client = loom.client()
        for n in range(10):
            client.wait(client.submit(f"warm-{n}", question(n)))
        for kill in range(scale.kills):
            first = 1000 + kill * TURNS
            ids = [client.submit(f"r-{n}", question(n, f"slow={STREAM_S}")) for n in range(first, first + TURNS)]
            for turn_id in ids:
                client.first_words(turn_id)
            _kill_one(loom, spans)
            for turn_id in ids:
                client.wait(turn_id)
            loom.settle()
    over = f"over {scale.kills} kills"
    name = f"SIGKILL of a worker to its turns' next claim, {over}"
    report.shares(name, spans.claimed_s, "s", shares=(50, 99), model="HTTP server")
    name = f"SIGKILL of a worker to its turns' end, {over} (replies of {STREAM_S:g} s)"
    report.shares(name, spans.ended_s, "s", shares=(50, 99), model="HTTP server")


def _kill_one(loom: Crew, spans: Spans) -> None:
    """Kill the worker with the most turns, and watch over these."""
    victim, ids = max(loom.holders().items(), key=lambda item: len(item[1]))
    fences = {turn_id: _row(loom, turn_id)[0] for turn_id in ids}
    loom.kill(victim)
    killed_s = time.monotonic()
    deadline_s = killed_s + PATIENCE_S
    while ids and time.monotonic() < deadline_s:
        loom.tend()
        for turn_id in list(ids):
            fence, is_over = _row(loom, turn_id)
            if turn_id in fences and fence != fences[turn_id]:
                del fences[turn_id]
                spans.claimed_s.append(time.monotonic() - killed_s)
            if is_over:
                ids.remove(turn_id)
                spans.ended_s.append(time.monotonic() - killed_s)
        time.sleep(LOOK_S)
    assert not ids, f"not ended within {PATIENCE_S:g} s: {ids}"


def _row(loom: Crew, turn_id: str) -> tuple[int, bool]:
    fence, completed_ms = loom.rows("SELECT fence, completed_ms FROM turns WHERE id = ?", turn_id)[0]
    return int(str(fence)), completed_ms is not None
