"""Lanes over both: a real Valkey, and fakeredis with its Lua."""

from collections.abc import Iterator
from typing import Any

import fakeredis
import pytest
import redis

from loom_worker.core.settings import LaneSettings
from loom_worker.lanes.lanes import Lanes


@pytest.fixture(params=["valkey", "fakeredis"])
def client(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "valkey":
        server: redis.Redis = request.getfixturevalue("valkey")
        yield server
    else:
        with fakeredis.FakeRedis(decode_responses=True) as fake:
            yield fake


@pytest.fixture
def lanes(client: Any) -> Lanes:
    return Lanes(client, LaneSettings())
