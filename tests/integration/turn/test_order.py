"""Many sessions at once, on one real worker: each is served in order, one turn at a time."""

import re
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from tests.support.engine import Engine
from tests.support.messages_server import Behaviour, Json, MessagesServer, Outgoing, Say
from tests.support.until import until
from tests.support.valkey import Valkey

pytestmark = [pytest.mark.integration, pytest.mark.heavy, pytest.mark.takes(10)]

SESSIONS = 30
TURNS = 3
LATENCY_S = 0.05
AT_ONCE = 8
"""Turns that one worker runs at the same time."""


@dataclass
class Log:
    """When the model was busy with which turn of which session."""

    spans: dict[str, list[tuple[int, float, float]]] = field(default_factory=lambda: defaultdict(list))
    lock: threading.Lock = field(default_factory=threading.Lock)
    begun: int = 0
    together: threading.Barrier = field(default_factory=lambda: threading.Barrier(AT_ONCE, timeout=60))
    """Where the first turns wait for each other."""

    def script(self, body: Json) -> Behaviour:
        session, number = re.findall(r"(s\d+) number (\d+)", str(body["messages"][-1]))[-1]
        return Timed(self, session, int(number))


@dataclass(frozen=True)
class Timed:
    """Answers after LATENCY_S and notes from when to when it took."""

    log: Log
    session: str
    number: int

    def send(self, out: Outgoing) -> None:
        began_s = time.monotonic()
        with self.log.lock:
            self.log.begun += 1
            is_first = self.log.begun <= AT_ONCE
        if is_first:
            self.log.together.wait()
        out.stopping.wait(LATENCY_S)
        with self.log.lock:
            self.log.spans[self.session].append((self.number, began_s, time.monotonic()))
        Say(f"{self.session} answer {self.number}").send(out)


@pytest.fixture(scope="module")
def served(valkey_server: Valkey, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Engine, Log]]:
    """An engine on which every turn of every session has ended."""
    log = Log()
    home = tmp_path_factory.mktemp("order") / "home"
    with (
        MessagesServer(script=log.script) as server,
        Engine(home, valkey_server, ANTHROPIC_BASE_URL=server.url) as engine,
    ):
        engine.start_worker("only")
        turns = [engine.submit(f"s{n}", f"s{n} number {k}") for k in range(TURNS) for n in range(SESSIONS)]
        for turn in turns:
            assert engine.ended(turn, timeout_s=90).status == "completed"
        yield engine, log


def test_every_session_has_its_messages_in_the_order_of_acceptance(served: tuple[Engine, Log]) -> None:
    engine, _ = served
    for n in range(SESSIONS):
        said = [message.chat.text for message in engine.messages(f"s{n}")]
        assert said == [text for k in range(TURNS) for text in (f"s{n} number {k}", f"s{n} answer {k}")]


def test_two_turns_of_a_session_never_run_at_the_same_time(served: tuple[Engine, Log]) -> None:
    engine, log = served
    for spans in log.spans.values():
        assert [number for number, _, _ in spans] == list(range(TURNS))
        assert all(before[2] <= after[1] for before, after in pairwise(spans))
    rows = engine.rows("SELECT session_id, started_ms, completed_ms FROM turns ORDER BY session_id, seq")
    for before, after in pairwise(rows):
        assert before[0] != after[0] or before[2] <= after[1]


def test_sessions_do_run_at_the_same_time(served: tuple[Engine, Log]) -> None:
    _, log = served
    assert not log.together.broken, f"{AT_ONCE} turns were not asked of the model at once"
    spans = [span for of_session in log.spans.values() for span in of_session]
    moments = sorted([(began, 1) for _, began, _ in spans] + [(ended, -1) for _, _, ended in spans])
    running = [sum(step for _, step in moments[: n + 1]) for n in range(len(moments))]
    assert max(running) >= AT_ONCE


def test_every_turn_is_run_once_and_doorbells_are_about_as_many_as_turns(served: tuple[Engine, Log]) -> None:
    engine, log = served
    assert sum(len(spans) for spans in log.spans.values()) == SESSIONS * TURNS
    assert engine.rows("SELECT DISTINCT fence, deaths FROM turns") == [(1, 0)]
    # No lower bound but this one: Celery's threads count without a lock and now and then lose one.
    assert SESSIONS <= engine.tasks_run()["loom.turn.run"] <= 2 * SESSIONS * TURNS


def test_idle_lanes_leave_no_key_behind(served: tuple[Engine, Log], valkey_server: Valkey) -> None:
    """Two seconds: a worker tells of an end before it gives the lane back; a lease that is forgotten lasts longer."""
    with valkey_server.client() as client:
        until(lambda: not client.keys("loom:lane:*") + client.keys("loom:lease:*"), 2, "no lane and no lease is left")
        assert client.zcard("loom:leases") == 0
