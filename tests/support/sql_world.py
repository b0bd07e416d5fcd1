"""The same small data in each kind of database: what an agent may see of it, and a canary in all the rest."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
from sqlalchemy import create_engine

from loom_worker.backends.sql import SqlBackend
from loom_worker.core.sqlite_driver import sqlite3
from loom_worker.core.values.agents import Scope
from tests.support.callers import CALLER
from tests.support.sql_attacks import CANARY

SCOPE = Scope(tables=("orders", "order_totals", "customers"), columns=("customers.id", "customers.name"))

_TABLES = (
    "CREATE TABLE customers (id INTEGER PRIMARY KEY, name VARCHAR(50), email VARCHAR(50))",
    "CREATE TABLE secrets (id INTEGER PRIMARY KEY, token VARCHAR(50))",
    "CREATE TABLE orders (id INTEGER PRIMARY KEY, customer_id INTEGER, total INTEGER, "
    "FOREIGN KEY (customer_id) REFERENCES customers (id))",
    "CREATE VIEW order_totals AS SELECT customer_id, sum(total) AS total FROM orders GROUP BY customer_id",
    "CREATE VIEW all_secrets AS SELECT token FROM secrets",
    f"INSERT INTO customers VALUES (1, 'Ada 100%', '{CANARY}'), (2, 'Bo', '{CANARY}')",
    f"INSERT INTO secrets VALUES (1, '{CANARY}')",
    "INSERT INTO orders VALUES " + ", ".join(f"({n}, {n % 2 + 1}, {n * 10})" for n in range(1, 21)),
)
_OTHER_SCHEMA = (
    "CREATE SCHEMA hr",
    "CREATE TABLE hr.salaries (id INTEGER PRIMARY KEY, pay VARCHAR(50))",
    f"INSERT INTO hr.salaries VALUES (1, '{CANARY}')",
)
_SEQUENCE = "CREATE SEQUENCE numbers"
_CONTENTS = {
    "customers": "SELECT * FROM customers ORDER BY id",
    "orders": "SELECT * FROM orders ORDER BY id",
    "secrets": "SELECT * FROM secrets",
    "salaries": "SELECT * FROM hr.salaries",
    "tables": "SELECT table_schema, table_name FROM information_schema.tables "
    "WHERE table_schema NOT IN ('performance_schema') ORDER BY 1, 2",
}


@dataclass(frozen=True)
class World:
    """A database that holds the data, and how to look at all of it behind the agent's back."""

    kind: str
    url: str
    contents: Callable[[], Any]
    """Something that differs once anything in the database has changed."""

    def backend(self, **settings: Any) -> SqlBackend:
        """The backend under test; with all rights of its URL's user, who is a superuser."""
        return SqlBackend(self.url, **settings)


def server_world(kind: str, url: str) -> World:
    """The data on a server."""
    engine = create_engine(url)
    with engine.begin() as connection:
        for statement in (*_TABLES, *_OTHER_SCHEMA, _SEQUENCE):
            connection.exec_driver_sql(statement, execution_options={"no_parameters": True})
    engine.dispose()

    def contents() -> Any:
        looking = create_engine(url)
        try:
            with looking.connect() as connection:
                return {name: connection.exec_driver_sql(sql).fetchall() for name, sql in _CONTENTS.items()}
        finally:
            looking.dispose()

    return World(kind, url, contents)


def sqlite_world(path: Path) -> World:
    """The data in a SQLite file."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in _TABLES:
            connection.execute(statement)
    return _file_world("sqlite", path)


def duckdb_world(path: Path) -> World:
    """The data in a DuckDB file."""
    import duckdb

    with duckdb.connect(str(path)) as connection:
        for statement in (*_TABLES, *_OTHER_SCHEMA, _SEQUENCE):
            connection.execute(statement)
    return _file_world("duckdb", path)


def _file_world(kind: str, path: Path) -> World:
    return World(
        kind, f"{kind}:///{path}", lambda: (path.read_bytes(), sorted(each.name for each in path.parent.iterdir()))
    )


def ask(backend: SqlBackend, tool: str, **arguments: Any) -> str:
    """Check the arguments as the registry would, run the tool, give its text."""
    found = next(each for each in backend.tools() if each.spec.name == tool)
    jsonschema.validate(arguments, dict(found.spec.input_schema))
    answer = found.run(arguments, CALLER)
    assert isinstance(answer, str)
    return answer
