"""Each kind of database once a test run, real and with the same data; those whose programs are missing are skipped."""

from collections.abc import Iterator

import pytest

from tests.support.mariadb import MariaDb, mariadb_programs
from tests.support.postgres import Postgres, postgres_folder
from tests.support.shop_file import shop_path
from tests.support.sql_world import World, duckdb_world, server_world, sqlite_world

__all__ = ["mariadb", "postgres", "shop_path", "world", "worlds"]


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install -e '.[postgresql]'")
    programs = postgres_folder()
    if programs is None:
        pytest.skip("initdb is not installed (Debian: postgresql)")
    with Postgres(programs) as server:
        yield server


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDb]:
    pytest.importorskip("pymysql", reason="pymysql is not installed: pip install -e '.[mysql]'")
    programs = mariadb_programs()
    if programs is None:
        pytest.skip("mariadbd is not installed (Debian: mariadb-server)")
    with MariaDb(programs) as server:
        yield server


@pytest.fixture(scope="session")
def worlds() -> dict[str, World]:
    """Those that were asked for, each made once."""
    return {}


@pytest.fixture(params=["sqlite", "duckdb", "postgresql", "mysql"])
def world(request: pytest.FixtureRequest, worlds: dict[str, World], tmp_path_factory: pytest.TempPathFactory) -> World:
    kind = request.param
    if kind not in worlds:
        worlds[kind] = _made(kind, request, tmp_path_factory)
    return worlds[kind]


def _made(kind: str, request: pytest.FixtureRequest, paths: pytest.TempPathFactory) -> World:
    match kind:
        case "sqlite":
            return sqlite_world(paths.mktemp("sqlite") / "shop.db")
        case "duckdb":
            pytest.importorskip("duckdb_engine", reason="not installed: pip install -e '.[duckdb]'")
            return duckdb_world(paths.mktemp("duckdb") / "shop.duckdb")
        case "postgresql":
            return server_world(kind, request.getfixturevalue("postgres").url)
        case _:
            return server_world(kind, request.getfixturevalue("mariadb").url)
