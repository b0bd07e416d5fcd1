"""A Loom that commands ask; a file whose commands need another one has a ``stage`` of its own."""

from collections.abc import Iterator

import pytest
import redis

from loom_worker.core.settings import Settings
from tests.support.web_stage import WebStage, stages


@pytest.fixture
def stage(settings: Settings, valkey: redis.Redis) -> Iterator[WebStage]:
    with stages(settings, valkey) as make:
        yield make()
