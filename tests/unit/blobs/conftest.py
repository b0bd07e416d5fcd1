"""The tiers over a real folder, and over a real Valkey or fakeredis with its Lua."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fakeredis
import pytest
import redis

from loom_worker.blobs.disk import DiskTier
from loom_worker.blobs.memory import MemoryTier
from tests.support.valkey import Valkey
from tests.unit.blobs.made import BOUND


@pytest.fixture(params=["valkey", "fakeredis"])
def client(request: pytest.FixtureRequest) -> Iterator[Any]:
    """One that does not decode responses, on an empty server."""
    if request.param == "valkey":
        server: Valkey = request.getfixturevalue("valkey_server")
        with redis.Redis.from_url(server.url, socket_timeout=20) as real:
            real.flushall()
            yield real
    else:
        with fakeredis.FakeRedis() as fake:
            yield fake


@pytest.fixture
def memory(client: Any) -> MemoryTier:
    return MemoryTier(client, most_bytes=BOUND, ttl_s=60)


@pytest.fixture
def disk(tmp_path: Path) -> DiskTier:
    return DiskTier(tmp_path / "blobs")
