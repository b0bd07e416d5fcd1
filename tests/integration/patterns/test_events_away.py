"""Events of the library for a Redis that is away, or that does not answer."""

import socket
import threading

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from loom_worker.core import redis_client
from loom_worker.core.errors import Unavailable
from loom_worker.core.values.patterns import PatternUpdateEvent
from loom_worker.patterns.events import LibraryEvents
from tests.support.until import until
from tests.support.valkey import Valkey

pytestmark = pytest.mark.heavy

WAIT_S = 15.0
LOADED = PatternUpdateEvent(("sql/a", "sql/b"), (), (), 89.44, (), patterns=2)
CHANGED = PatternUpdateEvent(("sql/c",), ("sql/a",), ("sql/b",), 12.0, (), patterns=2)
FAILED = PatternUpdateEvent((), (), (), 3.0, ("sql/a.yaml:2: no name",), patterns=2)


def senders() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "loom-patterns-events"]


def test_a_redis_that_is_away_holds_up_nothing_and_learns_it_all_later(caplog: pytest.LogCaptureFixture) -> None:
    with Valkey() as server, redis_client.client(server.url, connections=4) as client:
        server.kill()
        events = LibraryEvents(client, process="w1")
        for event in (LOADED, CHANGED, FAILED):
            events.publish(event)
        assert senders(), "a thread of its own tries"
        until(lambda: "wait for Redis" in caplog.text, WAIT_S, "the log says so")
        with pytest.raises(Unavailable):
            events.processes({"w1"})
        server.start()
        until(lambda: not senders(), WAIT_S, "all is sent")
        assert [each["errors"] for each in events.processes({"w1"})] == [["sql/a.yaml:2: no name"]]
        assert caplog.text.count("wait for Redis") == 1


def test_a_redis_that_swallows_what_it_is_sent_holds_up_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = redis.Redis(port=silent.getsockname()[1], socket_timeout=0.6, retry=Retry(NoBackoff(), 0))
        events = LibraryEvents(client, process="w1")
        events.publish(LOADED)
        assert senders(), "a thread of its own tries"
        until(lambda: "wait for Redis" in caplog.text, WAIT_S, "it is told of")
        events.close()
        until(lambda: not senders(), WAIT_S, "nobody tries any more")
        client.close()
