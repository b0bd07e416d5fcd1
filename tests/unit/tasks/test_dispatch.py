import base64
import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from celery import Celery

from loom_worker.core.values.calls import Call
from loom_worker.tasks.dispatch import CeleryDispatcher, Publisher, WakeupQueue
from tests.support.celery_app import app_at
from tests.support.until import AT_ONCE_S
from tests.support.webhook_receiver import unused_port


def waiting(client: redis.Redis, queue: str) -> list[tuple[str, list[Any]]]:
    """(task, args) of the messages of a queue, the oldest first."""
    raw: Any = client.lrange(f"loom:q:{queue}", 0, -1)
    found = []
    for text in reversed(raw):
        message = json.loads(text)
        args, _, _ = json.loads(base64.b64decode(message["body"]))
        found.append((message["headers"]["task"], args))
        assert len(text) < 2048
    return found


def test_a_bell_and_a_delivery_go_out_by_their_ids(app: Celery, valkey: redis.Redis) -> None:
    dispatcher = CeleryDispatcher(app, WakeupQueue(app, valkey))
    dispatcher.wake("lane1")
    dispatcher.deliver("whd_1")
    assert waiting(valkey, "turn") == [("loom.turn.run", ["lane1"])]
    assert waiting(valkey, "webhook") == [("loom.webhook.deliver", ["whd_1"])]


@pytest.mark.parametrize("number", [1, 3])
def test_a_fan_out_sends_each_call_with_its_sending_and_never_its_arguments(
    app: Celery, valkey: redis.Redis, number: int
) -> None:
    calls = [Call(f"t{n}", "look", {"secret": "hidden"}, n, 1, sends=n + 1) for n in range(number)]
    CeleryDispatcher(app, WakeupQueue(app, valkey)).fan_out("lane1", "turn_1", calls, "turn_1:1")
    assert waiting(valkey, "tool") == [("loom.tool.call", ["turn_1", n, n + 1]) for n in range(number)]
    keys: Any = valkey.keys("*")
    assert [key for key in keys if valkey.type(key) == "list"] == ["loom:q:tool"]
    messages: Any = valkey.lrange("loom:q:tool", 0, -1)
    assert "hidden" not in "".join(messages)


@pytest.fixture
def swallowing() -> Iterator[str]:
    """A broker that accepts connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0), backlog=16) as server:
        yield f"redis://127.0.0.1:{server.getsockname()[1]}/0"


def test_a_broker_that_refuses_is_logged_and_left_to_the_sweep(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dead = app_at(f"redis://127.0.0.1:{unused_port()}/0", tmp_path)
    CeleryDispatcher(dead, WakeupQueue(dead, None)).deliver("whd_1")
    assert "not sent, the sweep will" in caplog.text
    dead.close()


def test_a_broker_that_swallows_bytes_holds_a_sender_no_longer_than_its_timeout(
    tmp_path: Path, swallowing: str, caplog: pytest.LogCaptureFixture
) -> None:
    dead = app_at(swallowing, tmp_path)
    assert dead.conf.broker_transport_options["socket_timeout"] <= 15
    dead.conf.broker_transport_options = {**dead.conf.broker_transport_options, "socket_timeout": 0.2}
    began_s = time.monotonic()
    CeleryDispatcher(dead, WakeupQueue(dead, None)).deliver("whd_1")
    assert time.monotonic() - began_s < AT_ONCE_S
    assert "not sent, the sweep will" in caplog.text
    dead.close()


def test_a_publisher_sends_in_order_and_flushes_when_it_closes() -> None:
    done: list[int] = []
    publisher = Publisher()
    for number in range(500):
        publisher.put(lambda number=number: done.append(number))
    publisher.close()
    assert done == list(range(500))


def test_an_action_that_fails_does_not_silence_the_next(caplog: pytest.LogCaptureFixture) -> None:
    sent = threading.Event()
    publisher = Publisher()
    publisher.put(lambda: 1 / 0)
    publisher.put(sent.set)
    assert sent.wait(AT_ONCE_S)
    publisher.close()
    assert "division by zero" in caplog.text


def test_a_publisher_that_is_stuck_drops_what_is_too_much_and_never_blocks(caplog: pytest.LogCaptureFixture) -> None:
    stuck, begun, done = threading.Event(), threading.Event(), []
    publisher = Publisher(most_waiting=2)

    def hang() -> None:
        begun.set()
        stuck.wait(60)

    publisher.put(hang)
    assert begun.wait(AT_ONCE_S)
    began_s = time.monotonic()
    for number in range(4):
        publisher.put(lambda number=number: done.append(number))
    assert time.monotonic() - began_s < AT_ONCE_S
    assert caplog.text.count("publisher is full") == 2
    stuck.set()
    publisher.close()
    assert done == [0, 1]


def test_a_publisher_that_is_stuck_and_full_still_closes_in_time() -> None:
    stuck, begun = threading.Event(), threading.Event()
    publisher = Publisher(most_waiting=1)

    def hang() -> None:
        begun.set()
        stuck.wait(60)

    publisher.put(hang)
    assert begun.wait(AT_ONCE_S)
    publisher.put(lambda: None)
    closing = threading.Thread(target=publisher.close, kwargs={"timeout_s": 0.1})
    closing.start()
    closing.join(AT_ONCE_S)
    assert not closing.is_alive()
    stuck.set()
    publisher.close()


def test_a_dead_broker_behind_a_publisher_delays_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    dead = app_at(f"redis://127.0.0.1:{unused_port()}/0", tmp_path)
    publisher = Publisher()
    for _ in range(3):
        publisher.put(lambda: CeleryDispatcher(dead, WakeupQueue(dead, None)).deliver("whd_1"))
    publisher.close(timeout_s=60)
    failures = [record for record in caplog.records if "not sent" in record.message]
    assert len(failures) == 3
    assert threading.get_ident() not in {record.thread for record in failures}
    dead.close()
