"""A PostgreSQL that holds the same sessions and messages as a test's database, to be searched by the same code."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, create_engine, insert, select
from sqlalchemy.schema import CreateIndex, CreateTable

from loom_worker import store
from loom_worker.store.database import Database
from loom_worker.store.schema import messages, sessions
from loom_worker.store.tables import message_vectors
from tests.support.postgres import Postgres, postgres_folder

SCRIPT = Path(store.__file__).parent / "migrations" / "postgresql" / "search.sql"


class Mirror:
    """The tables that a search reads, in PostgreSQL."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @contextmanager
    def read(self) -> Iterator[Connection]:
        with self._engine.connect() as connection:
            yield connection

    write = read

    def take(self, database: Database) -> None:
        """Have what is in a database, with the same numbers, and nothing else."""
        with self.write() as tx, database.read() as ours:
            tx.exec_driver_sql("TRUNCATE sessions CASCADE")
            for table in (sessions, messages, message_vectors):
                if rows := [dict(row) for row in ours.execute(select(table)).mappings()]:
                    tx.execute(insert(table), rows)


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    programs = postgres_folder()
    if programs is None:
        pytest.skip("PostgreSQL is not installed (Debian: postgresql)")
    with Postgres(programs) as server:
        yield server.url


@pytest.fixture(scope="session")
def empty_mirror(server: str) -> Iterator[Mirror]:
    engine = create_engine(server, isolation_level="AUTOCOMMIT", paramstyle="format")
    with engine.connect() as connection:
        for table in (sessions, messages, message_vectors):
            connection.execute(CreateTable(table))
        for index in messages.indexes:
            connection.execute(CreateIndex(index))
        for statement in SCRIPT.read_text(encoding="utf-8").split("\n\n"):
            connection.exec_driver_sql(statement)
    yield Mirror(engine)
    engine.dispose()


@pytest.fixture
def mirrored(empty_mirror: Mirror) -> Callable[[Database], Mirror]:
    """Copies a database."""

    def mirrored(database: Database) -> Mirror:
        empty_mirror.take(database)
        return empty_mirror

    return mirrored
