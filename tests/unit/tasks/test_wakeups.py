"""Wake-ups are Celery's own messages, whoever wrote them."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import redis
from celery import Celery

from loom_worker.core import redis_client
from loom_worker.core.errors import Unavailable
from loom_worker.core.settings import LaneSettings
from loom_worker.lanes import keys
from loom_worker.lanes.lanes import Lanes, Lease
from loom_worker.tasks.dispatch import TASK, WakeupQueue
from tests.support.celery_app import app_at

LANE = "0123456789abcdef0123456789abcdef"
OWN = {"id", "root_id", "correlation_id", "delivery_tag", "reply_to"}
"""What differs from one message to the next."""


def read(text: str) -> tuple[Any, Any]:
    """A message's envelope, with the fields that are its own blanked out, and its body."""
    message = json.loads(text)
    body = json.loads(base64.b64decode(message.pop("body")))
    blanked = {
        part: {name: "" if name in OWN else value for name, value in fields.items()}
        for part, fields in message.items()
        if isinstance(fields, dict)
    }
    return {**message, **blanked}, body


def test_a_bell_is_the_message_that_celery_sends(app: Celery, valkey: redis.Redis) -> None:
    WakeupQueue(app, valkey).wake(LANE)
    app.send_task(TASK, args=(LANE,), ignore_result=True, retry=False)
    celerys, ours = (read(text) for text in valkey.lrange(keys.WAKEUPS, 0, -1))  # type: ignore[union-attr]
    assert ours == celerys


def test_a_free_thread_finds_the_lane_in_it(app: Celery, valkey: redis.Redis) -> None:
    lanes = Lanes(valkey, LaneSettings())
    lanes.submit(LANE, [(1, "turn_1")])
    WakeupQueue(app, valkey).wake(LANE)
    assert lanes.next("w-1", wait_s=0) == Lease(LANE, "w-1", 1)


def test_every_bell_has_an_id_of_its_own_and_names_its_lane_alone(app: Celery, valkey: redis.Redis) -> None:
    wakeups = WakeupQueue(app, valkey)
    first, second = (json.loads(wakeups.message(lane)) for lane in (LANE, LANE))
    for message in (first, second):
        assert message["headers"]["id"] == message["headers"]["root_id"] == message["properties"]["correlation_id"]
        assert message["headers"]["argsrepr"] == f"('{LANE}',)"
    assert first["headers"]["id"] != second["headers"]["id"]
    assert first["properties"]["delivery_tag"] != second["properties"]["delivery_tag"]


def test_bells_are_heard_in_the_order_in_which_they_were_rung(app: Celery, valkey: redis.Redis) -> None:
    wakeups = WakeupQueue(app, valkey)
    for n in range(3):
        wakeups.wake(f"{n:032x}")
    heard = [read(text)[1][0] for text in reversed(valkey.lrange(keys.WAKEUPS, 0, -1))]  # type: ignore[arg-type]
    assert heard == [[f"{n:032x}"] for n in range(3)]


def test_a_bell_that_cannot_be_rung_is_told(tmp_path: Path) -> None:
    url = f"unix://{tmp_path}/none"
    wakeups = WakeupQueue(app_at(url, tmp_path), redis_client.client(url, connections=1))
    with pytest.raises(Unavailable):
        wakeups.wake(LANE)
