"""Databases other than SQLite: PostgreSQL, MySQL, MariaDB and DuckDB.

``parse`` and ``resolve`` judge every statement before it is run here. The database itself is also read-only, by a
read-only transaction (DuckDB: a read-only file without access to others), a time limit of its own, and a rollback at
the end. The last wall is what the URL's user may do, which Loom does not control: grant it nothing but SELECT.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import NoSuchModuleError

from loom_worker.backends.results import MAX_FETCH_ROWS, collect
from loom_worker.core.errors import BadSettings
from loom_worker.core.values.json import Json

CONNECT_S = 5
"""Seconds a server has to accept a connection."""
DUCKDB_MEMORY = "512MB"

ConnectArgs = Callable[[URL, float], dict[str, object]]


@dataclass(frozen=True, slots=True)
class DatabaseKind:
    """How one kind of database is set to read-only."""

    package: str
    """The pip package of the usual driver."""
    connect_args: ConnectArgs
    """Makes the driver's arguments from the URL and the seconds a statement may take."""
    begin: tuple[str, ...] = ()
    """Run before each statement; ``{ms}`` and ``{s}`` stand for the time limit, ``{rows}`` for the limit of rows."""
    marker: str = "%s"
    """How the driver marks a parameter."""


def _postgresql(url: URL, timeout_s: float) -> dict[str, object]:
    if not url.get_driver_name().startswith("psycopg"):
        return {}  # other drivers name these differently; ``begin`` works with all of them
    options = "-c default_transaction_read_only=on -c standard_conforming_strings=on"
    options += f" -c statement_timeout={int(timeout_s * 1000)} -c lock_timeout={int(timeout_s * 1000)}"
    return {"connect_timeout": CONNECT_S, "options": options}


def _mysql(url: URL, timeout_s: float) -> dict[str, object]:
    if url.get_driver_name() != "pymysql":
        return {}
    # A server that is silent for longer is dead: the socket is closed and the connection never used again.
    return {"connect_timeout": CONNECT_S, "read_timeout": timeout_s + 1, "write_timeout": timeout_s + 1}


def _duckdb(_url: URL, _timeout_s: float) -> dict[str, object]:
    config = {
        "enable_external_access": "false",
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "python_enable_replacements": "false",
        "memory_limit": DUCKDB_MEMORY,
        "temp_directory": "",  # else a large sort is written to a file next to the database
        "lock_configuration": "true",
    }
    return {"read_only": True, "config": config}


_SQL_MODE = "SET SESSION sql_mode = 'ANSI_QUOTES,ONLY_FULL_GROUP_BY'"
"""Quotes and backslashes mean what the parser takes them for; a misspelt name in double quotes is an error, no text."""

_READ_ONLY = ("SET SESSION TRANSACTION READ ONLY", "START TRANSACTION READ ONLY")
"""Both, as a DDL statement ends the transaction it is sent in: with one of them MariaDB 10.11 dropped a table."""

SERVERS: Mapping[str, DatabaseKind] = {
    "postgresql": DatabaseKind(
        "psycopg[binary]",
        _postgresql,
        begin=("SET TRANSACTION READ ONLY", "SET LOCAL statement_timeout = {ms}", "SET LOCAL lock_timeout = {ms}"),
    ),
    "mysql": DatabaseKind(
        "pymysql",
        _mysql,
        begin=(
            _SQL_MODE,
            "SET SESSION max_execution_time = {ms}",
            "SET SESSION sql_select_limit = {rows}",
            *_READ_ONLY,
        ),
    ),
    "mariadb": DatabaseKind(
        "pymysql",
        _mysql,
        begin=(
            _SQL_MODE,
            "SET SESSION max_statement_time = {s}",
            "SET SESSION sql_select_limit = {rows}",
            *_READ_ONLY,
        ),
    ),
    "duckdb": DatabaseKind("duckdb-engine", _duckdb, marker="?"),
}


@dataclass(frozen=True, slots=True)
class Caps:
    """How long a statement may run and how much it may return."""

    max_rows: int
    max_bytes: int
    """Bytes of the result's JSON text in UTF-8."""
    timeout_s: float


def server_engine(url: URL, *, timeout_s: float) -> Engine:
    """Make the engine, without connecting.

    Raises:
        BadSettings: the driver is not installed.
    """
    server = SERVERS[url.get_backend_name()]
    try:
        engine = create_engine(url, pool_pre_ping=True, connect_args=server.connect_args(url, timeout_s))
    except (ImportError, NoSuchModuleError) as error:
        text = f"LOOM_BACKEND_URL: no driver for {url.drivername}: pip install '{server.package}'"
        raise BadSettings(text) from error
    if _SQL_MODE in server.begin:  # before SQLAlchemy looks how the server quotes the names that it reflects
        event.listen(engine, "connect", lambda made, _: made.cursor().execute(_SQL_MODE), insert=True)
    return engine


def server_query(engine: Engine, sql: str, values: tuple[object, ...], caps: Caps, *, is_streamed: bool = True) -> Json:
    """Run one statement that has been judged, in a read-only transaction that is rolled back.

    Args:
        values: bound to the driver's markers in the statement, never written into it.
        is_streamed: use a cursor of the server's, which PostgreSQL opens for queries that read only, not for EXPLAIN.

    Raises:
        SQLAlchemyError: the database refuses the statement or does not answer.
        TooWide: the columns' names alone exceed ``max_bytes``.
    """
    options: dict[str, object] = {"stream_results": is_streamed, "max_row_buffer": MAX_FETCH_ROWS}
    if not values:
        options["no_parameters"] = True  # otherwise a driver takes the % of LIKE '%x' for a placeholder
    with engine.connect() as connection:
        try:
            limits = {"ms": int(caps.timeout_s * 1000), "s": caps.timeout_s, "rows": caps.max_rows + 1}
            # A MySQL URL may lead to MariaDB; that is known once a connection was made.
            is_mariadb = getattr(engine.dialect, "is_mariadb", False)
            for begin in SERVERS["mariadb" if is_mariadb else engine.dialect.name].begin:
                connection.exec_driver_sql(begin.format(**limits))
            # The rows are closed before the rollback: MySQL's protocol cannot send one while rows are under way.
            with (
                _interrupted_after(caps.timeout_s, connection),
                closing(connection.exec_driver_sql(sql, values or None, execution_options=options)) as found,
            ):
                names = list(found.keys())
                return collect(names, found.fetchmany, max_rows=caps.max_rows, max_bytes=caps.max_bytes)
        finally:
            connection.rollback()


@contextmanager
def _interrupted_after(timeout_s: float, connection: Connection) -> Iterator[None]:
    """Interrupt a query of DuckDB, which runs in this process and has no time limit."""
    if connection.dialect.name != "duckdb":
        yield
        return
    timer = threading.Timer(timeout_s, connection.connection.dbapi_connection.interrupt)  # type: ignore[union-attr]
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
