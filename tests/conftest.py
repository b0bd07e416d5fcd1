"""Fixtures for all tests: a real Valkey, a real database in a temporary place, settings that point at both."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from loom_worker.settings import Settings, from_env
from loom_worker.store.database import Database
from loom_worker.store.prepare import prepare
from tests.support.valkey import Valkey


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[Valkey]:
    with Valkey() as server:
        yield server


@pytest.fixture
def valkey(valkey_server: Valkey) -> Iterator[redis.Redis]:
    with valkey_server.client() as client:
        client.flushall()
        yield client


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings of a home of its own, with its database made; no Redis runs there."""
    settings = from_env({"LOOM_HOME": str(tmp_path), "LOOM_SQLITE_SYNC": "normal"})
    prepare(settings)
    return settings


@pytest.fixture
def database(settings: Settings) -> Iterator[Database]:
    database = Database(settings.database_url, sync=settings.sqlite_sync)
    yield database
    database.close()
