"""A Loom that commands ask; a file whose commands need another one has a ``stage`` of its own."""

import os
from collections.abc import Iterator

import pytest
import redis

from loom_worker.core.settings import Settings
from tests.support.web_stage import WebStage, stages


@pytest.fixture
def stage(settings: Settings, valkey: redis.Redis) -> Iterator[WebStage]:
    with stages(settings, valkey) as make:
        yield make()


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    """`loom up` closes what it makes to others; run in this process it would do so for all tests behind it."""
    before = os.umask(0o022)
    os.umask(before)
    yield
    os.umask(before)
