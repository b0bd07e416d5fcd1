"""Strangers who can reach Redis push malformed messages into every queue and channel that a process of Loom reads."""

import json
import re
from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

import pytest
import redis

from loom_worker.core.settings import from_env
from loom_worker.tasks.app import QUEUES, configure
from loom_worker.tasks.dispatch import WakeupQueue
from tests.support.bad_messages import BYTES, SECRET, all_of
from tests.support.messages_server import MessagesServer
from tests.support.system import System, plain_agent
from tests.support.until import until

pytestmark = [pytest.mark.journey, pytest.mark.heavy, pytest.mark.takes(20)]

BROADCASTS = ("loom:q:/0.celery.pidbox", "loom:q:/0.celeryev/worker.heartbeat")
"""Remote control, which all workers hear, and the events that Flower hears."""
DROPPED = re.compile(r'^loom_dropped_messages_total\{queue="(\w+)"\} (\d+)', re.MULTILINE)


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    place = tmp_path_factory.mktemp("bad")
    with MessagesServer() as server:
        environ = {"ANTHROPIC_BASE_URL": server.url, "LOOM_AGENTS_DIR": plain_agent(place / "agents")}
        with System(place / "home", **environ) as system:
            yield system


def sound_message(system: System) -> dict[str, Any]:
    app = configure(from_env({"LOOM_HOME": str(system.home)}))
    message: dict[str, Any] = json.loads(WakeupQueue(app, None).message("0" * 32))
    return message


def dropped(system: System) -> dict[str, int]:
    counts = {queue: int(count) for queue, count in DROPPED.findall(system.get("/metrics").text)}
    return {queue: count for queue, count in counts.items() if count}


def logs(system: System) -> str:
    return "".join(path.read_text() for path in (system.home / "logs").glob("*.log"))


def test_bad_messages_in_every_queue_are_dropped_counted_and_logged_and_no_process_ends(system: System) -> None:
    before = system.children
    bad = all_of(sound_message(system))
    with system.redis() as client:
        for queue in QUEUES:
            client.rpush(f"loom:q:{queue}", *bad.values())
        turn = system.submit("s", "hello")
        until(lambda: all(client.llen(f"loom:q:{queue}") == 0 for queue in QUEUES), 15, "the queues are read")
        assert system.ended(turn)["status"] == "completed"
        until(lambda: dropped(system) == dict.fromkeys(QUEUES, len(bad)), 15, "all are counted")
        until(lambda: client.hlen("loom:q:unacked") == client.zcard("loom:q:unacked_index") == 0, 15, "none stays")
    assert system.children == before
    assert logs(system).count("dropped a malformed message of the queue turn") == len(bad)
    assert SECRET not in logs(system)


def test_bad_broadcasts_end_nobody(system: System) -> None:
    before = system.children
    sound = sound_message(system)
    with system.redis() as client:
        for channel, message in product(BROADCASTS, all_of(sound).values()):
            until(partial(client.publish, channel, message), 30, f"somebody listens to {channel}")
    until(lambda: dropped(system).get("control", 0) > 0, 15, "they are counted")
    assert system.ended(system.submit("s", "and on"))["status"] == "completed"
    assert system.run("status").returncode == 0
    assert system.children == before


def test_a_worker_starts_beside_unacknowledged_messages_that_cannot_be_read(system: System) -> None:
    with system.redis() as client:
        for number, value in enumerate(BYTES.values()):
            client.hset("loom:q:unacked", f"bad-{number}", value)  # type: ignore[arg-type]
            client.zadd("loom:q:unacked_index", {f"bad-{number}": 1})
        old = system.kill("worker-1")
        until(lambda: system.children.get("worker-1", old) != old, 15, "the worker runs again")
        until(lambda: not _unread(client), 15, "they are gone")
    assert system.ended(system.submit("s", "after all"))["status"] == "completed"


def _unread(client: redis.Redis) -> list[str]:
    tags: Any = client.zrange("loom:q:unacked_index", 0, -1)
    return [tag for tag in tags if tag.startswith("bad-")]
