"""The exporter is sent for in time, and never with more than a few messages."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import redis
from celery import Celery

from loom_worker.lanes import keys
from loom_worker.tasks.dispatch import CeleryDispatcher, WakeupQueue
from loom_worker.trace.flush import ENOUGH, LATE_MS, Flusher, NoTraces, TraceCall, TraceSweep
from tests.support.celery_app import app_at
from tests.support.until import AT_ONCE_S
from tests.support.valkey import Valkey
from tests.support.webhook_receiver import unused_port
from tests.unit.store.made import NOW_MS
from tests.unit.trace.conftest import Bench

LONG_S = 600.0
"""Longer than any test."""


@dataclass
class Counted:
    """A dispatcher that only counts."""

    sent: int = 0
    changed: threading.Condition = field(default_factory=threading.Condition)

    def export_traces(self) -> None:
        with self.changed:
            self.sent += 1
            self.changed.notify_all()

    def wait_for(self, n: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.sent >= n, AT_ONCE_S), self.sent


@pytest.fixture
def dispatcher() -> Counted:
    return Counted()


@pytest.fixture
def call(valkey: redis.Redis, dispatcher: Counted) -> TraceCall:
    return TraceCall(valkey, dispatcher)


@pytest.fixture
def flusher(call: TraceCall) -> Iterator[Flusher]:
    started = Flusher(call, wait_s=LONG_S)
    started.start()
    yield started
    started.stop()


@pytest.fixture
def app(valkey: redis.Redis, valkey_server: Valkey, tmp_path: Path) -> Iterator[Celery]:
    made = app_at(valkey_server.url, tmp_path)
    yield made
    made.close()


def test_the_message_is_one_without_arguments_and_only_one_waits(app: Celery, valkey: redis.Redis) -> None:
    call = TraceCall(valkey, CeleryDispatcher(app, WakeupQueue(app, valkey)))
    for _ in range(50):
        assert call.send(is_last=True)
        valkey.delete(keys.TRACES_SENT)
    messages: Any = valkey.lrange(keys.TRACES, 0, -1)
    (message,) = messages
    assert '"loom.trace.export"' in message
    assert len(message) < 1024


def test_right_after_a_message_none_is_sent_unless_it_is_the_last(call: TraceCall, dispatcher: Counted) -> None:
    assert call.send()
    assert not call.send()
    assert call.send(is_last=True)
    assert dispatcher.sent == 2


def test_enough_spans_send_for_the_exporter_at_once(flusher: Flusher, dispatcher: Counted) -> None:
    flusher.added(ENOUGH - 1)
    flusher.added(1)
    dispatcher.wait_for(1)


def test_fewer_do_after_a_while(call: TraceCall, dispatcher: Counted) -> None:
    flusher = Flusher(call, wait_s=0.05)
    flusher.start()
    flusher.added(1)
    dispatcher.wait_for(1)
    flusher.stop()
    assert dispatcher.sent == 1


def test_at_the_end_of_the_process_it_is_sent_for(flusher: Flusher, dispatcher: Counted) -> None:
    flusher.added(1)
    assert dispatcher.sent == 0
    flusher.stop()
    assert dispatcher.sent == 1


def test_at_the_end_of_a_process_that_never_began_one_too(call: TraceCall, dispatcher: Counted) -> None:
    flusher = Flusher(call)
    flusher.added(1)
    flusher.stop()
    assert dispatcher.sent == 1


def test_without_spans_nothing_is_sent(flusher: Flusher, dispatcher: Counted) -> None:
    flusher.stop()
    assert dispatcher.sent == 0


def test_spans_that_came_right_after_a_message_get_one_of_their_own(
    flusher: Flusher, dispatcher: Counted, valkey: redis.Redis
) -> None:
    flusher.added(ENOUGH)
    dispatcher.wait_for(1)
    flusher.added(ENOUGH)  # the first message may have been read before these were stored
    dispatcher.wait_for(2)


def test_a_broker_that_is_dead_costs_nobody_anything(dispatcher: Counted) -> None:
    dead: Any = redis.Redis.from_url(f"redis://127.0.0.1:{unused_port()}/0")
    flusher = Flusher(TraceCall(dead, dispatcher), wait_s=LONG_S)
    flusher.start()
    flusher.added(ENOUGH)
    flusher.stop()
    assert dispatcher.sent == 0
    dead.close()


def sweep_of(bench: Bench, call: TraceCall) -> TraceSweep:
    return TraceSweep(bench.outbox, call, bench.spans)


def test_the_sweep_sends_for_what_was_forgotten(bench: Bench, call: TraceCall, dispatcher: Counted) -> None:
    sweep = sweep_of(bench, call)
    sweep.once(NOW_MS)
    bench.ended(added_ms=NOW_MS - LATE_MS + 1)
    sweep.once(NOW_MS)
    assert dispatcher.sent == 0
    bench.ended(added_ms=NOW_MS - LATE_MS - 1, first=10)
    bench.outbox.remove([1])
    sweep.once(NOW_MS)
    assert dispatcher.sent == 1


def test_the_sweep_drops_the_oldest_of_too_many_and_counts_their_spans(bench: Bench, call: TraceCall) -> None:
    for n in range(7):
        bench.ended(spans=n + 1, first=n * 10, added_ms=NOW_MS)
    replace(sweep_of(bench, call), most=4).once(NOW_MS)
    assert bench.totals() == {"backlog": 1 + 2 + 3}
    assert bench.outbox.waiting() == 4


def test_where_nothing_is_exported_nothing_happens() -> None:
    nothing = NoTraces()
    nothing.start()
    nothing.added(5)
    nothing.once(NOW_MS)
    nothing.stop()
