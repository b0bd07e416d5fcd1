"""Event logs on a real Valkey, and on one that is not there."""

from pathlib import Path

import pytest
import redis

from loom_worker.core import redis_client
from loom_worker.events.log import EventLog


@pytest.fixture
def events(valkey: redis.Redis) -> EventLog:
    return EventLog(valkey)


@pytest.fixture
def nowhere(tmp_path: Path) -> EventLog:
    client = redis_client.client(f"unix://{tmp_path}/none", connections=4)
    return EventLog(client)
