"""Fixtures for all tests: a real Valkey, a real database in a temporary place, settings that point at both."""

import gc
import os
import shutil
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from loom_worker.core.errors import Unavailable
from loom_worker.core.settings import Settings, from_env
from loom_worker.store.database import Database
from loom_worker.store.prepare import prepare
from tests.support import cases
from tests.support.clock import Clock
from tests.support.counting import Counted, counting
from tests.support.schedule import JourneysTogether
from tests.support.shipped_patterns import keep_indexes_in
from tests.support.valkey import Valkey
from tests.support.webhook_receiver import WebhookReceiver

# A loaded machine takes its time; how long something takes is for benchmarks to say. Properties are tried on few
# examples, new ones in each run; --hypothesis-profile=thorough tries many.
_PATIENT = hypothesis_settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
hypothesis_settings.register_profile("quick", _PATIENT, max_examples=25)
hypothesis_settings.register_profile("thorough", _PATIENT, max_examples=150)
hypothesis_settings.load_profile("quick")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--store", choices=["sqlite", "postgresql"], default="sqlite", help="of the systems of journeys")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", cases.MARKER)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """All that is read here stays until the end: looking through it for garbage costs a twentieth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(obj: object) -> None:
    cases.hide_names(obj)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    return cases.run_all(pyfuncitem) or None


@pytest.fixture(scope="session", autouse=True)
def _pattern_index(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Fitted pattern indexes are shared by all processes of a test run."""
    base = tmp_path_factory.getbasetemp()
    keep_indexes_in((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "pattern_index")


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[Valkey]:
    with Valkey() as server:
        yield server


@pytest.fixture(scope="session")
def _client(valkey_server: Valkey) -> Iterator[redis.Redis]:
    """One client for all tests: making one takes longer than many a test."""
    with valkey_server.client() as client:
        yield client


@pytest.fixture
def valkey(_client: redis.Redis) -> redis.Redis:
    _client.flushall()
    return _client


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database as prepare makes it; making one anew for every test would cost 50 ms each."""
    home = tmp_path_factory.mktemp("template")
    prepare(from_env({"LOOM_HOME": str(home)}))
    return home / "loom.db"


@pytest.fixture
def settings(tmp_path: Path, empty_database: Path) -> Settings:
    """Settings of a home of its own, with its database made; no Redis runs there."""
    settings = from_env({"LOOM_HOME": str(tmp_path), "LOOM_SQLITE_SYNC": "normal"})
    shutil.copy(empty_database, tmp_path / "loom.db")
    return settings


class _Linked:
    """One Database for the homes of all tests, each in its turn: it keeps the statements that SQLAlchemy compiled."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._renew()

    def _renew(self) -> None:
        self._database = Database(f"sqlite:///{self._home}/loom.db", sync="normal")

    def open(self, home: Path) -> Database:
        """The database in a home, which this process uses for none other now."""
        self._home.unlink(missing_ok=True)
        self._home.symlink_to(home)
        return self._database

    def close(self) -> None:
        """Close it; one that is damaged, or gone, is not used again."""
        try:
            self._database.probe()
        except Unavailable:
            self._database.close()
            self._renew()
        else:
            self._database.close()


@pytest.fixture(scope="session")
def _linked(tmp_path_factory: pytest.TempPathFactory) -> _Linked:
    return _Linked(tmp_path_factory.mktemp("linked") / "home")


@pytest.fixture
def database(settings: Settings, _linked: _Linked) -> Iterator[Database]:
    yield _linked.open(settings.home)
    _linked.close()


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with WebhookReceiver() as started:
        yield started


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def counted() -> Iterator[Counted]:
    """What this process counts during the test."""
    with counting() as counted:
        yield counted


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files that take longest come first, so that no process is left alone with one of them at the end."""
    items.sort(key=_takes_s, reverse=True)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    return JourneysTogether(config, log) if config.getvalue("dist") == "loadfile" else None


def _takes_s(item: pytest.Item) -> float:
    marker = item.get_closest_marker("takes")
    return float(marker.args[0]) if marker else 0.0
