"""Databases other than SQLite: PostgreSQL, MySQL, MariaDB and DuckDB.

Before a statement comes here, ``parse`` and ``resolve`` have judged it. The database is told to read only as well: by a
read-only transaction (DuckDB: a read-only file without access to others), a time limit of its own, and a rollback at
the end. What the URL's user may do is the last wall, and not ours to build: give it no right but SELECT.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass

from sqlalchemy import URL, Connection, Engine, create_engine
from sqlalchemy.exc import NoSuchModuleError

from loom_worker.backends.results import MAX_FETCH_ROWS, collect
from loom_worker.core.errors import BadSettings
from loom_worker.core.values.json import Json

CONNECT_S = 5
"""Seconds a server has to answer a connection."""
DUCKDB_MEMORY = "512MB"

ConnectArgs = Callable[[URL, float], dict[str, object]]


@dataclass(frozen=True, slots=True)
class DatabaseServer:
    """How a kind of database is told to read only."""

    package: str
    """The pip package of the usual driver."""
    connect_args: ConnectArgs
    """For the driver, by URL and the seconds a statement may take."""
    begin: tuple[str, ...] = ()
    """Run before each statement, with ``{ms}`` and ``{s}`` for the time limit and ``{rows}`` for that of rows."""
    marker: str = "%s"
    """What the driver calls a parameter."""


def _postgresql(url: URL, timeout_s: float) -> dict[str, object]:
    if not url.get_driver_name().startswith("psycopg"):
        return {}  # other drivers name these differently; what ``begin`` asks for holds with each
    options = "-c default_transaction_read_only=on -c standard_conforming_strings=on"
    options += f" -c statement_timeout={int(timeout_s * 1000)} -c lock_timeout={int(timeout_s * 1000)}"
    return {"connect_timeout": CONNECT_S, "options": options}


def _mysql(url: URL, timeout_s: float) -> dict[str, object]:
    if url.get_driver_name() != "pymysql":
        return {}
    # A server that is silent for longer is dead: the socket is closed, and its connection never used again.
    return {"connect_timeout": CONNECT_S, "read_timeout": timeout_s + 1, "write_timeout": timeout_s + 1}


def _duckdb(_url: URL, _timeout_s: float) -> dict[str, object]:
    config = {
        "enable_external_access": "false",
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "python_enable_replacements": "false",
        "memory_limit": DUCKDB_MEMORY,
        "temp_directory": "",  # else a sort that outgrows the memory is written beside the file
        "lock_configuration": "true",
    }
    return {"read_only": True, "config": config}


_SQL_MODE = "SET SESSION sql_mode = 'ONLY_FULL_GROUP_BY'"
"""Quotes and backslashes mean what the parser takes them for, whatever the server's own mode is."""

_READ_ONLY = ("SET SESSION TRANSACTION READ ONLY", "START TRANSACTION READ ONLY")
"""Both, as a DDL statement ends the transaction it is sent in: MariaDB 10.11 then dropped a table all the same."""

SERVERS: Mapping[str, DatabaseServer] = {
    "postgresql": DatabaseServer(
        "psycopg[binary]",
        _postgresql,
        begin=("SET TRANSACTION READ ONLY", "SET LOCAL statement_timeout = {ms}", "SET LOCAL lock_timeout = {ms}"),
    ),
    "mysql": DatabaseServer(
        "pymysql",
        _mysql,
        begin=(
            _SQL_MODE,
            "SET SESSION max_execution_time = {ms}",
            "SET SESSION sql_select_limit = {rows}",
            *_READ_ONLY,
        ),
    ),
    "mariadb": DatabaseServer(
        "pymysql",
        _mysql,
        begin=(
            _SQL_MODE,
            "SET SESSION max_statement_time = {s}",
            "SET SESSION sql_select_limit = {rows}",
            *_READ_ONLY,
        ),
    ),
    "duckdb": DatabaseServer("duckdb-engine", _duckdb, marker="?"),
}


@dataclass(frozen=True, slots=True)
class Caps:
    """How much a statement may take and give."""

    max_rows: int
    max_bytes: int
    """Of the result's JSON text in UTF-8."""
    timeout_s: float


def server_engine(url: URL, *, timeout_s: float) -> Engine:
    """Make the engine; nothing is connected yet.

    Raises:
        BadSettings: the driver is not installed.
    """
    server = SERVERS[url.get_backend_name()]
    try:
        return create_engine(url, pool_pre_ping=True, connect_args=server.connect_args(url, timeout_s))
    except (ImportError, NoSuchModuleError) as error:
        text = f"LOOM_BACKEND_URL: no driver for {url.drivername}: pip install '{server.package}'"
        raise BadSettings(text) from error


def server_query(engine: Engine, sql: str, values: tuple[object, ...], caps: Caps, *, is_streamed: bool = True) -> Json:
    """Run one statement, which must have been judged, in a transaction that reads only and is rolled back.

    Args:
        values: for the driver's markers in the statement, bound and never written into it.
        is_streamed: through a cursor of the server's, which PostgreSQL opens for nothing but a query that reads;
            an EXPLAIN cannot be.

    Raises:
        SQLAlchemyError: the database refuses it or does not answer.
        TooWide: the names of its columns alone exceed ``max_bytes``.
    """
    options: dict[str, object] = {"stream_results": is_streamed, "max_row_buffer": MAX_FETCH_ROWS}
    if not values:
        options["no_parameters"] = True  # a driver would else take the % of LIKE '%x' for a placeholder
    with engine.connect() as connection:
        try:
            limits = {"ms": int(caps.timeout_s * 1000), "s": caps.timeout_s, "rows": caps.max_rows + 1}
            for begin in SERVERS[_kind(engine)].begin:
                connection.exec_driver_sql(begin.format(**limits))
            # The rows are closed before the rollback, which MySQL's protocol has no room for while they are under way.
            with (
                _interrupted_after(caps.timeout_s, connection),
                closing(connection.exec_driver_sql(sql, values or None, execution_options=options)) as found,
            ):
                names = list(found.keys())
                return collect(names, found.fetchmany, max_rows=caps.max_rows, max_bytes=caps.max_bytes)
        finally:
            connection.rollback()


def _kind(engine: Engine) -> str:
    """A MySQL URL may well lead to MariaDB; known once a connection was made."""
    return "mariadb" if getattr(engine.dialect, "is_mariadb", False) else engine.dialect.name


@contextmanager
def _interrupted_after(timeout_s: float, connection: Connection) -> Iterator[None]:
    """End a query of DuckDB, which runs in this process and knows no time limit."""
    if connection.dialect.name != "duckdb":
        yield
        return
    timer = threading.Timer(timeout_s, connection.connection.dbapi_connection.interrupt)  # type: ignore[union-attr]
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
