"""The stage on which turns are played, for those who look on."""

import pytest
import redis

from loom_worker.core.settings import Settings
from loom_worker.store.database import Database
from tests.support.out import Out
from tests.support.stage import Stage


@pytest.fixture
def out() -> Out:
    return Out()


@pytest.fixture
def stage(settings: Settings, database: Database, valkey: redis.Redis) -> Stage:
    return Stage(settings, database, valkey)
