"""Redis' failures in our own words."""

from collections.abc import Iterator

import pytest
import redis

from loom_worker.core import redis_client
from loom_worker.core.errors import Unavailable
from loom_worker.core.settings import LaneSettings
from loom_worker.events.log import EventLog
from loom_worker.lanes.lanes import Lanes


@pytest.fixture
def full(valkey: redis.Redis) -> Iterator[redis.Redis]:
    """A server that has no room."""
    valkey.config_set("maxmemory", "1")
    yield valkey
    valkey.config_set("maxmemory", "0")


def test_a_redis_with_room_is_well(valkey: redis.Redis) -> None:
    redis_client.probe(valkey)
    assert 0 < valkey.pttl("loom:probe") <= 1_000


def test_a_full_redis_is_told_from_one_that_does_not_answer(full: redis.Redis) -> None:
    lanes, events = Lanes(full, LaneSettings()), EventLog(full)
    for write in (
        lambda: redis_client.probe(full),
        lambda: lanes.submit("lane", [(1, "turn_1")]),
        lambda: events.append("turn_1", [("turn.queued", {})], least=-1),
    ):
        with pytest.raises(Unavailable, match="Redis is full") as refused:
            write()
        assert refused.value.slug == "storage-full"


def test_a_full_redis_still_forgets(valkey: redis.Redis) -> None:
    lanes = Lanes(valkey, LaneSettings())
    lanes.submit("lane", [(1, "turn_1")])
    valkey.config_set("maxmemory", "1")
    try:
        lanes.forget("lane")
    finally:
        valkey.config_set("maxmemory", "0")
    assert valkey.keys("loom:lane:*") == []
