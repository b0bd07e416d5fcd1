"""Reports of work as a real Flower's state reads them, out of the events of real dispatchers."""

import contextlib
from typing import Any

import pytest
import redis
from celery import Celery
from celery.events import EventReceiver
from celery.events.dispatcher import EventDispatcher
from flower.inspector import Inspector
from kombu import Connection

from loom_worker.core.monitor import Work
from loom_worker.runtime.flower import LoomState
from loom_worker.tasks.task_events import MOST, TaskEvents
from tests.support.until import until

TURN = Work("turn_1", "turn", ("turn_1", "s1"), 1, accepted_ms=1_000, started_ms=2_500, names={"agent": "default"})
AGAIN = Work("turn_1", "turn", ("turn_1", "s1"), 2, accepted_ms=1_000, started_ms=2_500, names={"agent": "default"})


class Watched:
    """A Flower as far as its state needs one."""

    def __init__(self) -> None:
        self.workers: dict[str, Any] = {}
        self.asked: list[str] = []

    def update_workers(self, name: str) -> None:
        self.asked.append(name)


@pytest.fixture
def flower() -> Watched:
    return Watched()


@pytest.fixture
def state(flower: Watched) -> LoomState:
    return LoomState(flower, max_tasks_in_memory=100, max_workers_in_memory=100)


def sent(events: TaskEvents, state: LoomState, node: str = "worker-1@host") -> None:
    """Have a worker send what it has, and a Flower read it."""
    app = Celery("events", broker="memory://", set_as_current=False)
    dispatcher = EventDispatcher(Connection("memory://"), app=app, hostname=node, buffer_group=["task"])
    read: list[dict[str, Any]] = []
    dispatcher._publish = lambda batch, *_args, **_options: read.extend(batch)
    dispatcher.on_send_buffered, dispatcher.buffer_limit = None, MOST
    events.send(dispatcher)
    dispatcher.flush()
    for event in read:
        state.event({**event, "local_received": event["timestamp"]})


def told(state: LoomState, task_id: str = "turn_1") -> dict[str, Any]:
    task: dict[str, Any] = state.tasks[task_id].as_dict()
    return task


def test_a_turn_is_one_task_with_its_ids_times_and_result(state: LoomState) -> None:
    events = TaskEvents()
    events.started(TURN)
    events.waits(TURN, "a person", run_ms=100)
    sent(events, state)
    task = told(state)
    assert (task["name"], task["state"], task["result"]) == ("loom.turn.run", "RETRY", "waits for a person")
    assert (task["args"], task["kwargs"]) == ("('turn_1', 's1')", "{'agent': 'default'}")
    events.started(AGAIN)
    sent(events, state)
    assert (told(state)["state"], told(state)["result"]) == ("STARTED", None)
    events.succeeded(AGAIN, "completed", run_ms=1_250)
    sent(events, state)
    task = told(state)
    assert (task["state"], task["result"], task["runtime"]) == ("SUCCESS", "completed", 1.25)
    assert (task["received"], task["started"], len(state.tasks)) == (1.0, 2.5, 1)


def test_a_failure_has_its_reason_and_a_cancelled_turn_is_revoked_also_after_a_wait(state: LoomState) -> None:
    events = TaskEvents()
    events.failed(TURN, "failed: provider", run_ms=1)
    sent(events, state)
    assert (told(state)["state"], told(state)["exception"], told(state)["result"]) == (
        *("FAILURE", "failed: provider"),
        None,
    )
    other = Work("turn_2", "turn", ("turn_2", "s1"), 1)
    events.waits(other, "tools (2)", run_ms=1)
    events.cancelled(other, "cancelled: interrupt", run_ms=1)
    sent(events, state)
    assert (told(state, "turn_2")["state"], told(state, "turn_2")["result"]) == ("REVOKED", "cancelled: interrupt")


def test_what_a_former_worker_reports_late_does_not_take_the_place_of_what_the_next_one_said(state: LoomState) -> None:
    former, following = TaskEvents(), TaskEvents()
    former.started(TURN)
    former.waits(TURN, "tools (1)", run_ms=1)
    following.started(AGAIN)
    following.succeeded(AGAIN, "completed", run_ms=2)
    sent(following, state, "worker-2@host")
    sent(former, state, "worker-1@host")
    task = told(state)
    assert (task["state"], task["result"], task["worker"].hostname) == ("SUCCESS", "completed", "worker-2@host")


def test_whoever_takes_on_what_had_ended_for_another_begins_it_anew(state: LoomState) -> None:
    events = TaskEvents()
    events.cancelled(TURN, "taken over", run_ms=1)
    events.started(AGAIN)
    sent(events, state)
    assert told(state)["state"] == "STARTED"
    events.failed(AGAIN, "failed: dead", run_ms=1)
    events.started(Work("turn_1", "turn", ("turn_1", "s1"), 3))
    sent(events, state)
    assert (told(state)["state"], told(state)["exception"]) == ("STARTED", None)


def test_a_call_is_shown_as_a_part_of_its_turn(state: LoomState) -> None:
    events = TaskEvents()
    events.started(TURN)
    events.started(Work("turn_1:0", "tool", ("turn_1", "s1", "toolu_1"), 1, part_of="turn_1"))
    sent(events, state)
    assert (told(state, "turn_1:0")["parent"], told(state)["children"]) == ("turn_1", ["turn_1:0"])


def test_of_more_reports_than_may_wait_the_newest_stay(state: LoomState) -> None:
    events = TaskEvents()
    for n in range(MOST):
        events.succeeded(Work(f"turn_{n}", "turn", (), 1), "completed", run_ms=1)
    events.failed(TURN, "failed: dead", run_ms=1)
    events.succeeded(Work("turn_0", "turn", (), 2), "completed", run_ms=1)
    sent(events, state)
    assert told(state, "turn_0")["state"] == "SUCCESS"
    assert len(state.tasks) == 100


def test_a_worker_is_asked_once_it_is_heard_of_until_it_is_known(state: LoomState, flower: Watched) -> None:
    def heard(kind: str) -> None:
        event = {"type": kind, "hostname": "w@host", "timestamp": 1.0, "local_received": 1.0, "active": 0, "freq": 2}
        state.event(event)

    heard("worker-heartbeat")
    flower.workers["w@host"] = {"conf": {}}
    heard("worker-heartbeat")
    assert flower.asked == ["w@host", "w@host"]
    flower.workers["w@host"] = dict.fromkeys(Inspector.inspect_methods)
    heard("worker-heartbeat")
    assert len(flower.asked) == 2
    heard("worker-online")
    assert (flower.workers, len(flower.asked)) == ({}, 2)
    heard("worker-heartbeat")
    assert len(flower.asked) == 3


def test_the_rest_is_sent_over_the_broker_when_no_loop_runs(app: Celery, valkey: redis.Redis) -> None:
    read: list[dict[str, Any]] = []
    with app.connection_for_read() as given:
        receiver = EventReceiver(given, handlers={"*": read.append}, app=app)
        with receiver.consumer_context() as (connection, _channel, _consumers):

            def listens() -> bool:
                with contextlib.suppress(TimeoutError):
                    connection.drain_events(timeout=0.01)
                return bool(valkey.pubsub_numpat() or valkey.pubsub_channels())

            until(listens, 10, "the receiver listens")
            events = TaskEvents()
            events.failed(TURN, "failed: dead", run_ms=1)
            events.send_rest(app, node="worker-1@host")
            connection.drain_events(timeout=10)
    assert [(event["uuid"], event["hostname"]) for event in read] == [("turn_1", "worker-1@host")]


def test_a_broker_that_is_away_at_the_end_costs_reports_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    app = Celery("events", broker="redis://127.0.0.1:1/0", set_as_current=False)
    app.conf.broker_transport_options = {"max_retries": 1, "interval_start": 0}
    events = TaskEvents()
    events.send_rest(app, node="worker-1@host")
    assert caplog.messages == []
    events.succeeded(TURN, "completed", run_ms=1)
    events.send_rest(app, node="worker-1@host")
    assert "were not sent" in caplog.text
