"""How long it takes to read the state of a session with much behind it."""

import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

from bench.client import Client
from bench.load import HELLO, warm_up
from bench.past import MESSAGES_A_TURN, lengthen, open_database
from bench.report import Report
from bench.scale import Scale
from bench.system import SCRIPTED, System
from loom_worker.core.values.ids import now_ms
from loom_worker.store.claims import Claims, Idle
from loom_worker.store.memory import Memories
from loom_worker.turn.context import HISTORY_MESSAGES

LENGTH = 10_000
SESSION = "long"


def measure(report: Report, scale: Scale) -> None:
    """Over HTTP, and as a worker reads it."""
    with System(**SCRIPTED) as loom:
        warm_up(loom)
        client = loom.client()
        turn_id = client.submit(SESSION, HELLO)
        client.wait(turn_id)
        lengthen(loom.home, turn_id, LENGTH // MESSAGES_A_TURN - 1)
        paths = {
            "GET session": f"/v1/sessions/{SESSION}",
            "GET turn": f"/v1/turns/{turn_id}",
            "GET first page of messages": f"/v1/sessions/{SESSION}/messages",
        }
        for name, path in paths.items():
            _add(report, name, times=scale.reads, read=partial(_get, client, path))
        client.patch(SESSION, status="paused")
        client.submit(SESSION, HELLO)
        lane = str(loom.rows("SELECT lane FROM sessions WHERE id = ?", SESSION)[0][0])
        _claims(report, loom.home, lane=lane, times=scale.reads)


def _claims(report: Report, home: Path, *, lane: str, times: int) -> None:
    """The session is paused, so that a claim reads all it needs and then leaves the turn alone."""
    with closing(open_database(home)) as database:
        claims, memories = Claims(database), Memories(database)

        def read() -> None:
            assert claims.claim(lane, worker="bench", now_ms=now_ms()) is Idle.PAUSED
            assert len(memories.load(lane, limit=HISTORY_MESSAGES).history) == HISTORY_MESSAGES

        _add(report, f"what a claim reads, and the latest {HISTORY_MESSAGES} messages", times=times, read=read)


def _add(report: Report, name: str, *, times: int, read: Callable[[], None]) -> None:
    took_ms = []
    for _ in range(times):
        began_s = time.perf_counter()
        read()
        took_ms.append((time.perf_counter() - began_s) * 1000)
    report.shares(f"{name}, {LENGTH} messages behind it", took_ms, "ms", shares=(50, 99))


def _get(client: Client, path: str) -> None:
    status, answer = client.get(path)
    assert status == 200, answer
