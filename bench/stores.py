"""Stores to measure alone: a file or a database on a server, new and empty, with whatever fills them."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager

import psycopg

from loom_worker.core.settings import from_env
from loom_worker.store.database import Database
from loom_worker.store.prepare import prepare
from tests.support import store_postgres
from tests.support.postgres import Postgres, postgres_folder


@contextmanager
def server() -> Iterator[Database]:
    """A new PostgreSQL server, with the settings that docs/postgresql.md advises."""
    programs = postgres_folder()
    if programs is None:
        raise SystemExit("PostgreSQL is not installed (Debian: apt install postgresql)")
    with (
        Postgres(programs, autovacuum="on", shared_buffers="1GB", jit="off") as running,
        closing(Database(store_postgres.made(running))) as store,
    ):
        yield store


@contextmanager
def file() -> Iterator[Database]:
    """A new file in a temporary place."""
    with tempfile.TemporaryDirectory() as home:
        settings = from_env({"LOOM_HOME": home, "LOOM_SQLITE_SYNC": "normal"})
        prepare(settings)
        store = Database(settings.database_url, sync="normal")
        yield store
        store.close()


STORES = {"sqlite": file, "postgresql": server}


def vacuum(store: Database) -> None:
    """Have a server look at what was loaded, and drop what was replaced, as it does by itself within minutes."""
    if not store.engine.files:
        with psycopg.connect(store.engine.where, autocommit=True) as server:
            server.execute("VACUUM (ANALYZE)")


def figure(name: str, value: float, unit: str, **more: object) -> None:
    """Print one."""
    print(json.dumps({"figure": name, "value": round(value, 2), "unit": unit, **more}), flush=True)
