"""An app of a test's own: configuring the one of the package would leave its connections to the next test."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from celery import Celery

from loom_worker.settings import from_env
from loom_worker.tasks.app import configure
from tests.support.valkey import Valkey


def app_at(url: str, home: Path) -> Celery:
    """An app with Loom's options, at this broker."""
    conf: Any = configure(from_env({"LOOM_HOME": str(home), "LOOM_REDIS_URL": url})).conf
    made = Celery("test", set_as_current=False)
    names = ("broker_url", "result_backend", "broker_transport_options", "result_backend_transport_options")
    made.conf.update(
        {name: conf[name] for name in (*names, "task_routes", "task_ignore_result", "redis_socket_keepalive")}
    )
    return made


@pytest.fixture
def app(valkey: redis.Redis, valkey_server: Valkey, tmp_path: Path) -> Iterator[Celery]:
    """An app on the real Valkey, emptied."""
    made = app_at(valkey_server.url, tmp_path)
    yield made
    made.close()
