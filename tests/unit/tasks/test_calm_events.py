from types import SimpleNamespace
from typing import Any, cast

import pytest
from celery import Celery
from celery.events.dispatcher import EventDispatcher
from celery.worker import state
from kombu import Connection
from kombu.asynchronous import Hub

from loom_worker.core.monitor import Work
from loom_worker.tasks import worker
from loom_worker.tasks.calm_events import CalmEvents
from loom_worker.tasks.task_events import TaskEvents
from loom_worker.tasks.worker import Worker


@pytest.fixture
def dispatcher() -> Any:
    app = Celery("events", broker="memory://", set_as_current=False)
    sent: list[int] = []
    found = EventDispatcher(Connection("memory://"), app=app, buffer_group=["task"], on_send_buffered=sent.clear)
    found._publish = lambda events, *_args, **_options: sent.append(len(events))
    found.sent = sent
    return found


def told(hub: Hub | None, dispatcher: Any) -> Any:
    consumer = SimpleNamespace(hub=hub, event_dispatcher=dispatcher, on_task_message=set())
    CalmEvents(None).start(consumer)
    return consumer


def pass_time(hub: Hub) -> None:
    """What the loop does once the first of its timers is due."""
    (due,) = hub.timer.queue
    hub.timer.clear()
    hub.timer.apply_entry(due.entry)


@pytest.fixture
def reports() -> TaskEvents:
    events, none = TaskEvents(), cast("Any", None)
    worker.begin(Worker(none, none, none, none, events))
    return events


def test_events_of_a_moment_are_one_message(dispatcher: Any, reports: TaskEvents) -> None:
    hub = Hub()
    told(hub, dispatcher)
    for n in range(40):
        dispatcher.send("task-received", uuid=str(n))
    for n in range(60):
        reports.succeeded(Work(f"turn_{n}", "turn", (), 1), "completed", run_ms=1)
    assert dispatcher.sent == []
    pass_time(hub)
    assert dispatcher.sent == [100]


def test_a_dispatcher_of_a_lost_connection_is_left_alone_and_the_reports_wait(
    dispatcher: Any, reports: TaskEvents
) -> None:
    hub = Hub()
    told(hub, dispatcher)
    dispatcher.enabled = False
    reports.succeeded(Work("turn_1", "turn", (), 1), "completed", run_ms=1)
    pass_time(hub)
    assert dispatcher.sent == []
    hub, dispatcher.enabled = Hub(), True
    told(hub, dispatcher)
    pass_time(hub)
    assert dispatcher.sent == [1]


def test_without_a_loop_celery_keeps_its_own_way(dispatcher: Any) -> None:
    before = dispatcher.on_send_buffered
    told(None, dispatcher)
    assert dispatcher.on_send_buffered is before


def test_the_loop_is_woken_for_reports_only_while_the_worker_has_tasks(
    dispatcher: Any, reports: TaskEvents, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = Hub()
    monkeypatch.setattr(state, "reserved_requests", tasks := {"one"})
    consumer = told(hub, dispatcher)
    pass_time(hub)
    reports.succeeded(Work("turn_1", "turn", (), 1), "completed", run_ms=1)
    tasks.clear()
    pass_time(hub)
    assert dispatcher.sent == [1]
    assert hub.timer.queue == []
    tasks.add("two")
    for on_task_message in consumer.on_task_message:
        on_task_message("two")
        on_task_message("two")
    assert len(hub.timer.queue) == 1


def test_a_new_connection_leaves_one_that_sends(dispatcher: Any, reports: TaskEvents) -> None:
    other = print
    consumer = told(Hub(), dispatcher)
    consumer.on_task_message.add(other)
    CalmEvents(None).start(consumer)
    assert len(consumer.on_task_message) == 2
    assert other in consumer.on_task_message
