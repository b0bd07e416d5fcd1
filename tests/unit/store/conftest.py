"""Each test gets an empty database: on SQLite and, in ``make test-all``, on PostgreSQL, too."""

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from loom_worker.core.settings import Settings, from_env
from loom_worker.store.database import Database
from loom_worker.store.prepare import prepare
from tests.support import store_postgres
from tests.support.postgres import started, started_with_pgvector

ON_A_FILE = frozenset(
    "test_backup test_database test_file test_migrations test_prepare test_retention_of_space test_usable_keys".split()
)
"""Modules about what SQLite alone has: a file, its copies and its space."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "settings" in metafunc.fixturenames and metafunc.module.__name__.rpartition(".")[2] not in ON_A_FILE:
        servers = ["postgresql", *(["pgvector"] if metafunc.module.__name__.endswith(".test_vectors") else [])]
        on_server = (pytest.param(each, marks=pytest.mark.heavy) for each in servers)
        metafunc.parametrize("engine", ["sqlite", *on_server], indirect=True)


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
def pgvector_url() -> Iterator[str]:
    """A prepared database on a server with the extension."""
    with started_with_pgvector("vectors are compared by numpy alone") as server:
        with psycopg.connect(server.store_url) as connection:
            connection.execute("CREATE EXTENSION vector")
            # The package's server knows no ICU, by which words are folded; these tests look for none.
            connection.execute("""CREATE COLLATION public."und-x-icu" (provider = libc, locale = 'C')""")
        settings = from_env({"LOOM_DATABASE_URL": server.store_url})
        assert prepare(settings)
        assert not prepare(settings)
        yield server.store_url


@pytest.fixture(scope="session")
def _on_server(postgres_url: str) -> Iterator[Database]:
    """One for all tests: it keeps the statements that SQLAlchemy compiled."""
    opened = Database(postgres_url)
    yield opened
    opened.close()


@pytest.fixture
def settings(request: pytest.FixtureRequest, engine: str, tmp_path: Path, migrated: Path) -> Settings:
    given = {"LOOM_HOME": str(tmp_path), "LOOM_SQLITE_SYNC": "normal"}
    if engine != "sqlite":
        url: str = request.getfixturevalue({"postgresql": "postgres_url"}.get(engine, "pgvector_url"))
        return from_env({**given, "LOOM_DATABASE_URL": store_postgres.emptied(url)})
    shutil.copy(migrated, tmp_path / "loom.db")
    return from_env(given)


@pytest.fixture
def database(request: pytest.FixtureRequest, settings: Settings, engine: str) -> Iterator[Database]:
    if engine == "postgresql":
        yield request.getfixturevalue("_on_server")
    elif engine == "pgvector":
        with closing(Database(settings.database_url)) as opened:
            yield opened
    else:
        linked = request.getfixturevalue("_linked")
        yield linked.open(settings.home)
        linked.close()
