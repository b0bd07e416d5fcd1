from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from celery.events.dispatcher import EventDispatcher
from kombu import Connection
from kombu.asynchronous import Hub

from loom_worker.tasks.repairs import CalmEvents


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


def test_events_of_a_moment_are_one_message(dispatcher: Any) -> None:
    hub = Hub()
    told(hub, dispatcher)
    for n in range(100):
        dispatcher.send("task-received", uuid=str(n))
    assert dispatcher.sent == []
    hub.timer.apply_entry(hub.timer.queue[0].entry)
    assert dispatcher.sent == [100]


def test_a_dispatcher_of_a_lost_connection_is_left_alone(dispatcher: Any) -> None:
    hub = Hub()
    told(hub, dispatcher)
    dispatcher.send("task-received", uuid="1")
    dispatcher.enabled = False
    hub.timer.apply_entry(hub.timer.queue[0].entry)
    assert dispatcher.sent == []


def test_without_a_loop_celery_keeps_its_own_way(dispatcher: Any) -> None:
    before = dispatcher.on_send_buffered
    told(None, dispatcher)
    assert dispatcher.on_send_buffered is before
