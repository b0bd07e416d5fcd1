"""A Loom that commands ask; a file whose commands need another one has a ``stage`` of its own."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from click.testing import CliRunner

from loom_worker.cli.main import main
from loom_worker.core.settings import Settings
from tests.support.cli_server import Loom, asked_by_commands
from tests.support.web_stage import WebStage, stages


@pytest.fixture
def stage(settings: Settings, valkey: redis.Redis) -> Iterator[WebStage]:
    with stages(settings, valkey) as make:
        yield make()


@pytest.fixture
def loom(request: pytest.FixtureRequest, stage: WebStage, tmp_path: Path) -> Iterator[Loom]:
    """The command that the file of tests is named after, asking a server on loopback."""
    command = request.path.stem.removeprefix("test_")
    with asked_by_commands(stage, tmp_path) as env:
        yield lambda *arguments: CliRunner().invoke(main, [command, *arguments], env=env)


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    """`loom up` closes what it makes to others; run in this process it would do so for all tests behind it."""
    before = os.umask(0o022)
    os.umask(before)
    yield
    os.umask(before)
