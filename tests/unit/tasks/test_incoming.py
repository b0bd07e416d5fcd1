"""Loom's own messages pass, every malformed one is refused, and the refusal repeats none of its content."""

import json
from typing import Any

import pytest
import redis
from celery import Celery, chord, signature

from loom_worker.core.settings import from_env
from loom_worker.lanes import keys
from loom_worker.tasks import incoming
from loom_worker.tasks.app import QUEUES, TASK_MODULES, configure
from loom_worker.tasks.dispatch import TASK, WakeupQueue
from tests.support.bad_messages import BYTES, CALLS, ENVELOPES, SECRET

LANE = "0123456789abcdef0123456789abcdef"


@pytest.fixture(scope="module")
def tasks() -> Any:
    configured = configure(from_env({}))
    for module in TASK_MODULES:
        __import__(module)
    return configured.tasks


@pytest.fixture
def sound(app: Celery, valkey: redis.Redis) -> dict[str, Any]:
    wakeups = WakeupQueue(app, valkey)
    message: dict[str, Any] = json.loads(wakeups.message(LANE))
    return message


def check(data: bytes | str, tasks: Any) -> None:
    envelope = incoming.read(data)
    incoming.check_task(envelope, incoming.check_envelope(envelope), tasks)


def test_all_that_loom_sends_passes(app: Celery, valkey: redis.Redis, tasks: Any) -> None:
    app.send_task(TASK, args=(LANE,), retry=False)
    app.send_task("loom.webhook.deliver", args=("whd_1",), retry=False)
    app.send_task("loom.summary.compress", args=(LANE,), retry=False)
    header = [signature("loom.tool.call", args=("turn_1", n, 1), immutable=True, app=app) for n in range(20)]
    chord(header, app=app)(signature("loom.turn.wake", args=(LANE, "ticket"), immutable=True, app=app))
    WakeupQueue(app, valkey).wake(LANE)
    messages: list[Any] = [text for queue in QUEUES for text in valkey.lrange(f"{keys.PREFIX}q:{queue}", 0, -1)]  # type: ignore[union-attr]
    assert len(messages) == 24
    for message in messages:
        check(message, tasks)
        assert len(message) * 10 < incoming.LARGEST_BYTES


@pytest.mark.cases("name", [*BYTES, *ENVELOPES, *CALLS])
def test_a_malformed_message_is_refused_without_repeating_it(name: str, sound: dict[str, Any], tasks: Any) -> None:
    makers = {**ENVELOPES, **CALLS}
    data = BYTES[name] if name in BYTES else json.dumps(makers[name](sound)).encode()
    check(json.dumps(sound), tasks)
    with pytest.raises(incoming.BadMessage) as refused:
        check(data, tasks)
    assert SECRET not in str(refused.value)


@pytest.mark.cases(
    ("envelope", "shown"),
    [
        ({"properties": {"delivery_tag": "6f2c-1.a_b"}}, "6f2c-1.a_b"),
        ({"properties": {"delivery_tag": "two\nlines"}}, "without a usable tag"),
        ({"properties": {"delivery_tag": "a" * 65}}, "without a usable tag"),
        ({"properties": []}, "without a usable tag"),
        (None, "without a usable tag"),
    ],
)
def test_only_a_harmless_tag_is_shown(envelope: object, shown: str) -> None:
    assert incoming.label(envelope) == shown
