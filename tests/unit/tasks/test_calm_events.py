from types import SimpleNamespace
from typing import Any, cast

import pytest
from celery import Celery
from celery.events.dispatcher import EventDispatcher
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


def told(hub: Hub | None, dispatcher: Any) -> None:
    CalmEvents(None).start(SimpleNamespace(hub=hub, event_dispatcher=dispatcher))


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
    hub.timer.apply_entry(hub.timer.queue[0].entry)
    assert dispatcher.sent == [100]


def test_a_dispatcher_of_a_lost_connection_is_left_alone_and_the_reports_wait(
    dispatcher: Any, reports: TaskEvents
) -> None:
    hub = Hub()
    told(hub, dispatcher)
    dispatcher.enabled = False
    reports.succeeded(Work("turn_1", "turn", (), 1), "completed", run_ms=1)
    hub.timer.apply_entry(hub.timer.queue[0].entry)
    assert dispatcher.sent == []
    hub, dispatcher.enabled = Hub(), True
    told(hub, dispatcher)
    hub.timer.apply_entry(hub.timer.queue[0].entry)
    assert dispatcher.sent == [1]


def test_without_a_loop_celery_keeps_its_own_way(dispatcher: Any) -> None:
    before = dispatcher.on_send_buffered
    told(None, dispatcher)
    assert dispatcher.on_send_buffered is before
