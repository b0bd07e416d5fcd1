"""Each test gets an empty database: on SQLite and, in ``make test-all``, on PostgreSQL, too."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from loom_worker.core.settings import Settings, from_env
from loom_worker.store.database import Database
from loom_worker.store.prepare import prepare
from tests.support import store_postgres
from tests.support.postgres import started

ON_A_FILE = frozenset(
    "test_backup test_database test_file test_migrations test_prepare test_retention_of_space test_usable_keys".split()
)
"""Modules about what SQLite alone has: a file, its copies and its space."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "settings" in metafunc.fixturenames and metafunc.module.__name__.rpartition(".")[2] not in ON_A_FILE:
        on_server = pytest.param("postgresql", marks=pytest.mark.heavy)
        metafunc.parametrize("engine", ["sqlite", on_server], indirect=True)


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> str:
    return getattr(request, "param", "sqlite")


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("migrated")
    prepare(from_env({"LOOM_HOME": str(home)}))
    return home / "loom.db"


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    with started("the store is tested on SQLite alone") as server:
        yield store_postgres.made(server)


@pytest.fixture(scope="session")
def _on_server(postgres_url: str) -> Iterator[Database]:
    """One for all tests: it keeps the statements that SQLAlchemy compiled."""
    opened = Database(postgres_url)
    yield opened
    opened.close()


@pytest.fixture
def settings(request: pytest.FixtureRequest, engine: str, tmp_path: Path, migrated: Path) -> Settings:
    given = {"LOOM_HOME": str(tmp_path), "LOOM_SQLITE_SYNC": "normal"}
    if engine == "postgresql":
        url: str = request.getfixturevalue("postgres_url")
        return from_env({**given, "LOOM_DATABASE_URL": store_postgres.emptied(url)})
    shutil.copy(migrated, tmp_path / "loom.db")
    return from_env(given)


@pytest.fixture
def database(request: pytest.FixtureRequest, settings: Settings, engine: str) -> Iterator[Database]:
    if engine == "postgresql":
        yield request.getfixturevalue("_on_server")
    else:
        linked = request.getfixturevalue("_linked")
        yield linked.open(settings.home)
        linked.close()
