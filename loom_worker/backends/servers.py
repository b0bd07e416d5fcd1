"""Databases other than SQLite: PostgreSQL, MySQL, MariaDB and DuckDB.

Only SQLite is tested. Here the server is asked for a read-only transaction (DuckDB: a read-only file) and a time limit,
and every transaction is rolled back; the rest is the server's: give the URL's user no rights but SELECT. DuckDB knows
no time limit, so a long query runs on after the tool has timed out.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlalchemy import URL, Engine, create_engine
from sqlalchemy.exc import NoSuchModuleError

from loom_worker.backends.results import collect
from loom_worker.backends.statements import without_tricks
from loom_worker.errors import BadSettings
from loom_worker.values.json import Json


@dataclass(frozen=True, slots=True)
class Server:
    """How a kind of database is told to read only."""

    package: str
    """The pip package of the usual driver."""
    begin: tuple[str, ...] = ()
    """Run before each statement, with ``{ms}`` and ``{s}`` for the time limit."""
    connect_args: Mapping[str, object] = field(default_factory=dict)


SERVERS: Mapping[str, Server] = {
    "postgresql": Server("psycopg[binary]", begin=("SET TRANSACTION READ ONLY", "SET LOCAL statement_timeout = {ms}")),
    "mysql": Server("pymysql", begin=("SET SESSION max_execution_time = {ms}", "START TRANSACTION READ ONLY")),
    "mariadb": Server("pymysql", begin=("SET SESSION max_statement_time = {s}", "START TRANSACTION READ ONLY")),
    "duckdb": Server("duckdb-engine", connect_args={"read_only": True, "config": {"enable_external_access": "false"}}),
}


def server_engine(url: URL) -> Engine:
    """Make the engine; nothing is connected yet.

    Raises:
        BadSettings: the driver is not installed.
    """
    server = SERVERS[url.get_backend_name()]
    try:
        return create_engine(url, pool_pre_ping=True, connect_args=dict(server.connect_args))
    except (ImportError, NoSuchModuleError) as error:
        text = f"LOOM_BACKEND_URL: no driver for {url.drivername}: pip install '{server.package}'"
        raise BadSettings(text) from error


def server_query(engine: Engine, sql: str, *, max_rows: int, max_bytes: int, timeout_s: float) -> Json:
    """Run one statement in a transaction that reads only and is rolled back.

    Raises:
        ToolFailed: the statement holds what cannot be judged here.
        SQLAlchemyError: the database refuses it or does not answer.
    """
    statement = without_tricks(sql)
    # no_parameters: a driver would else take the % of LIKE '%x' for a placeholder.
    options = {"stream_results": True, "no_parameters": True}
    with engine.connect() as connection:
        try:
            for begin in SERVERS[engine.dialect.name].begin:
                connection.exec_driver_sql(begin.format(ms=int(timeout_s * 1000), s=timeout_s))
            found = connection.exec_driver_sql(statement, execution_options=options)
            return collect(list(found.keys()), found.fetchmany, max_rows=max_rows, max_bytes=max_bytes)
        finally:
            connection.rollback()
