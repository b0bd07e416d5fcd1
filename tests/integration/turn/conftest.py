"""One worker process and one Messages API for all tests of a module."""

from collections.abc import Iterator

import pytest

from tests.support.engine import Engine
from tests.support.messages_server import MessagesServer
from tests.support.valkey import Valkey


@pytest.fixture(scope="module")
def server() -> Iterator[MessagesServer]:
    with MessagesServer() as server:
        yield server


@pytest.fixture(scope="module")
def engine(server: MessagesServer, valkey_server: Valkey, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    home = tmp_path_factory.mktemp("engine") / "home"
    with Engine(home, valkey_server, ANTHROPIC_BASE_URL=server.url) as engine:
        engine.start_worker("first")
        yield engine
