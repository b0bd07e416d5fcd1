"""An app on the real Valkey."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from celery import Celery

from tests.support.celery_app import app_at
from tests.support.valkey import Valkey


@pytest.fixture
def app(valkey: redis.Redis, valkey_server: Valkey, tmp_path: Path) -> Iterator[Celery]:
    """An app on the real Valkey, emptied."""
    made = app_at(valkey_server.url, tmp_path)
    yield made
    made.close()
