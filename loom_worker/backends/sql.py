"""A SQL database as three tools and a schema: read-only, capped in rows, bytes and time.

On SQLite the statement runs in a guarded child process; see ``servers`` for the other databases.
"""

import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import URL, Engine, NullPool, create_engine, make_url
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, ProgrammingError, SQLAlchemyError

from loom_worker.backends import schema
from loom_worker.backends.results import TooWide, encode
from loom_worker.backends.servers import SERVERS, server_engine, server_query
from loom_worker.backends.sqlite_process import query
from loom_worker.backends.statements import MAX_SQL_CHARS, only_statement
from loom_worker.errors import BadSettings, ToolFailed
from loom_worker.values.chat import ToolSpec
from loom_worker.values.json import Json
from loom_worker.values.tools import Caller, Tool

MAX_TABLES = 20
"""Tables of one ``get_schema``."""

LIST_TABLES = ToolSpec(
    "list_tables",
    "List the tables of the database, each with its number of columns.",
    {"type": "object", "properties": {}, "additionalProperties": False},
)
GET_SCHEMA = ToolSpec(
    "get_schema",
    "Show columns, types, primary key and foreign keys of tables. Use it before you write SQL on a table whose "
    "columns you do not know.",
    {
        "type": "object",
        "properties": {
            "tables": {
                "type": "array",
                "items": {"type": "string", "minLength": 1, "maxLength": 200},
                "minItems": 1,
                "maxItems": MAX_TABLES,
                "description": "Names as list_tables gives them.",
            }
        },
        "required": ["tables"],
        "additionalProperties": False,
    },
)
EXECUTE_SQL = ToolSpec(
    "execute_sql",
    "Run one SELECT (or WITH … SELECT) and return its columns and rows. The database is read-only. Results are "
    "capped, and truncated says so: aggregate, filter and LIMIT in SQL rather than fetch many rows.",
    {
        "type": "object",
        "properties": {
            "sql": {
                "type": "string",
                "minLength": 1,
                "maxLength": MAX_SQL_CHARS,
                "description": "One statement in the database's own dialect.",
            }
        },
        "required": ["sql"],
        "additionalProperties": False,
    },
)


class SqlBackend:
    """The tools over one database; connects when first used, and may be used from many threads."""

    def __init__(
        self, url: str, *, max_rows: int = 200, max_result_bytes: int = 16 * 1024, timeout_s: float = 30.0
    ) -> None:
        """Take a SQLAlchemy URL.

        Args:
            max_result_bytes: of a result's JSON text in UTF-8.
            timeout_s: of one statement.

        Raises:
            BadSettings: the URL is none, or of a database that is not served.
        """
        self._url = _checked(url)
        self._max_rows = max_rows
        self._max_bytes = max_result_bytes
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._engine: Engine | None = None

    def tools(self) -> tuple[Tool, ...]:
        """list_tables, get_schema and execute_sql; each waits two seconds longer than the statement's own limit."""
        runs = ((LIST_TABLES, self._list_tables), (GET_SCHEMA, self._get_schema), (EXECUTE_SQL, self._execute_sql))
        return tuple(Tool(spec, run, timeout_s=self._timeout_s + 2) for spec, run in runs)

    def describe(self) -> str:
        """The schema as text for the system prompt, the same bytes for the same schema.

        Raises:
            ToolFailed: the database does not answer, or its file is missing.
            BadSettings: its driver is missing.
        """
        return schema.describe(self._tables(), self._url.get_backend_name())

    def close(self) -> None:
        """Close every connection; the next use opens new ones."""
        with self._lock:
            engine, self._engine = self._engine, None
        if engine is not None:
            engine.dispose()

    def _list_tables(self, _arguments: Json, _caller: Caller) -> str:
        listed = [{"name": table.name, "columns": len(table.columns)} for table in self._tables()]
        text = encode({"tables": listed})
        while len(text.encode()) > self._max_bytes:
            listed = listed[: len(listed) * 9 // 10]
            text = encode({"tables": listed, "truncated": True})
        return text

    def _get_schema(self, arguments: Json, _caller: Caller) -> str:
        tables = {table.name: table for table in self._tables()}
        for name in arguments["tables"]:
            if name not in tables:
                raise ToolFailed(schema.hint(f"no such table: {name}", "", tuple(tables.values())), "INVALID_INPUT")
        names = dict.fromkeys(arguments["tables"])
        text = encode({"tables": [tables[name].as_json() for name in names]})
        if len(text.encode()) > self._max_bytes:
            raise ToolFailed(f"the schema of these {len(names)} tables is too long: ask for fewer", "INVALID_INPUT")
        return text

    def _execute_sql(self, arguments: Json, _caller: Caller) -> str:
        sql = only_statement(arguments["sql"])
        try:
            return encode(self._query(sql))
        except ToolFailed as failed:
            if not str(failed.args[0]).startswith("no such "):
                raise
            raise ToolFailed(schema.hint(failed.args[0], sql, self._tables()), failed.code) from failed

    def _query(self, sql: str) -> Json:
        if self._file is None:
            with _translated():
                caps = {"max_rows": self._max_rows, "max_bytes": self._max_bytes}
                return server_query(self._open(), sql, timeout_s=self._timeout_s, **caps)
        return query(
            {
                "uri": _read_only(_existing(self._file)),
                "sql": sql,
                "max_rows": self._max_rows,
                "max_bytes": self._max_bytes,
                "timeout_s": self._timeout_s,
            }
        )

    def _tables(self) -> tuple[schema.Table, ...]:
        if self._file is not None:
            _existing(self._file)
        with _translated():
            return schema.read_tables(self._open())

    @property
    def _file(self) -> Path | None:
        is_file = self._url.get_backend_name() == "sqlite"
        return Path(self._url.database or "").absolute() if is_file else None

    def _open(self) -> Engine:
        with self._lock:
            if self._engine is None:
                self._engine = _file_engine(self._file) if self._file else server_engine(self._url)
            return self._engine


def _checked(url: str) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        # The text is not repeated: it may hold a password.
        raise BadSettings("LOOM_BACKEND_URL: expected a SQLAlchemy URL such as sqlite:////path/of.db") from error
    kind = parsed.get_backend_name()
    if kind != "sqlite" and kind not in SERVERS:
        raise BadSettings(f"LOOM_BACKEND_URL: {kind} is not served; expected sqlite, {', '.join(sorted(SERVERS))}")
    if kind == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise BadSettings("LOOM_BACKEND_URL: expected a file: sqlite:////path/of.db")
    return parsed


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise ToolFailed(f"the database file {path.name} does not exist", "DATABASE_ERROR")
    return path


def _file_engine(path: Path) -> Engine:
    """An engine for reflection, which needs PRAGMA; the model's SQL never runs on it."""
    uri = _read_only(path)
    return create_engine("sqlite://", creator=lambda: sqlite3.connect(uri, uri=True), poolclass=NullPool)


def _read_only(path: Path) -> str:
    return f"file:{quote(str(path))}?mode=ro"


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Turn the database's complaints into text for the model, without SQLAlchemy's additions."""
    try:
        yield
    except TooWide as error:
        raise ToolFailed(str(error), "INVALID_INPUT") from error
    except DBAPIError as error:
        code = "INVALID_INPUT" if isinstance(error, (ProgrammingError, DataError)) else "DATABASE_ERROR"
        raise ToolFailed(" ".join(str(error.orig).split()), code) from error
    except SQLAlchemyError as error:
        raise ToolFailed(f"the database does not answer: {type(error).__name__}", "DATABASE_ERROR") from error
