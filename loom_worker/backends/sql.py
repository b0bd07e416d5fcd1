"""A SQL database as three tools and a schema: read-only, within a scope, capped in rows, bytes and time.

On SQLite the statement runs in a guarded child process; see ``servers`` for the other databases.
"""

import hashlib
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from sqlalchemy import URL, Engine, NullPool, create_engine, make_url
from sqlalchemy.exc import ArgumentError

from loom_worker.backends import schema
from loom_worker.backends.catalogs import Catalogs
from loom_worker.backends.duckdb_schema import read_duckdb
from loom_worker.backends.error_text import translated
from loom_worker.backends.hints import hint
from loom_worker.backends.parameters import checked, is_torn
from loom_worker.backends.results import encode
from loom_worker.backends.scope import Catalog, is_narrow, narrow
from loom_worker.backends.servers import SERVERS, Caps, server_engine, server_query
from loom_worker.backends.specs import EXECUTE_SQL, GET_SCHEMA, LIST_TABLES
from loom_worker.backends.sqlite_guard import Seen
from loom_worker.backends.sqlite_process import query
from loom_worker.backends.statements import only_statement
from loom_worker.core.errors import BadSettings, ToolFailed
from loom_worker.core.sqlite_driver import sqlite3
from loom_worker.core.values.agents import Scope
from loom_worker.core.values.json import Json
from loom_worker.core.values.tools import Caller, Tool

if TYPE_CHECKING:
    from loom_worker.backends.parse import Statement

MAX_ROWS = 10_000
MAX_RESULT_BYTES = 10_000_000
EVERYTHING = Scope()


class SqlBackend:
    """The tools over one database; connects when first used, and may be used from many threads."""

    def __init__(
        self,
        url: str,
        *,
        scope: Scope = EVERYTHING,
        max_rows: int = MAX_ROWS,
        max_result_bytes: int = MAX_RESULT_BYTES,
        timeout_s: float = 30.0,
    ) -> None:
        """Take a SQLAlchemy URL.

        Args:
            scope: what of the database is described and can be read.
            max_result_bytes: of a result's JSON text in UTF-8.
            timeout_s: of one statement.

        Raises:
            BadSettings: the URL is none, or of a database that is not served.
        """
        self._url = _checked(url)
        self._kind = self._url.get_backend_name()
        self._scope = scope
        self._caps = Caps(max_rows, max_result_bytes, timeout_s)
        self._lock = threading.Lock()
        self._engine: Engine | None = None
        self._catalogs = Catalogs(self._read)

    @classmethod
    def from_origin(cls, origin: Json) -> "SqlBackend":
        """The backend again, in another process, from the origin of one of its tools."""
        scope = {key: None if names is None else tuple(names) for key, names in origin["scope"].items()}
        caps = {key: origin[key] for key in ("max_rows", "max_result_bytes", "timeout_s")}
        return cls(origin["url"], scope=Scope(**scope), **caps)

    def tools(self) -> tuple[Tool, ...]:
        """list_tables, get_schema and execute_sql; each waits two seconds longer than the statement's own limit."""
        runs = ((LIST_TABLES, self._list_tables), (GET_SCHEMA, self._get_schema), (EXECUTE_SQL, self._execute_sql))
        limit_s, group, origin = self._caps.timeout_s + 2, self._group, self._origin
        return tuple(Tool(spec, run, timeout_s=limit_s, group=group, origin=origin) for spec, run in runs)

    def check(self) -> None:
        """Look whether it could be opened; nothing is connected.

        Raises:
            BadSettings: its file is not there, or its driver is not installed.
        """
        if self._kind in ("sqlite", "duckdb") and not (file := Path(self._url.database or "").absolute()).is_file():
            raise BadSettings(f"{file}: no such file")
        if self._kind != "sqlite":
            self._open()

    def describe(self) -> str:
        """The schema as text for the system prompt, the same bytes for the same schema.

        Raises:
            ToolFailed: the database does not answer, or its file is missing.
            BadSettings: its driver is missing.
        """
        return schema.describe(self._catalogs.get().tables, self._kind)

    def strangers(self) -> tuple[str, ...]:
        """Schemas, tables and columns that the scope names, as it does, and that are not there.

        Raises:
            ToolFailed, BadSettings: see describe.
        """
        return self._catalogs.get().strangers

    def close(self) -> None:
        """Close every connection; the next use opens new ones and reads the schema anew."""
        with self._lock:
            engine, self._engine = self._engine, None
        if engine is not None:
            engine.dispose()
        self._catalogs.drop()

    def _list_tables(self, _arguments: Json, _caller: Caller) -> str:
        listed = [{"name": table.path, "columns": len(table.columns)} for table in self._catalogs.get().tables]
        text = encode({"tables": listed})
        while len(text.encode()) > self._caps.max_bytes:
            listed = listed[: len(listed) * 9 // 10]
            text = encode({"tables": listed, "truncated": True})
        return text

    def _get_schema(self, arguments: Json, _caller: Caller) -> str:
        names = dict.fromkeys(arguments["tables"])
        tables = {table.path: table for table in self._catalogs.get().tables}
        if not names.keys() <= tables.keys():
            tables = {table.path: table for table in self._newest().tables}
        for name in names:
            if name not in tables:
                raise ToolFailed(hint(f"no such table: {name}", "", tuple(tables.values())), "INVALID_INPUT")
        text = encode({"tables": [tables[name].as_json() for name in names]})
        if len(text.encode()) > self._caps.max_bytes:
            raise ToolFailed(f"the schema of these {len(names)} tables is too long: ask for fewer", "INVALID_INPUT")
        return text

    def _execute_sql(self, arguments: Json, _caller: Caller) -> str:
        sql, parameters = arguments["sql"], checked(arguments.get("parameters"), self._kind)
        if is_torn(sql):
            raise ToolFailed("the SQL contains half of a character (a lone surrogate)", "INVALID_INPUT")
        try:
            file = self._file
            return encode(self._on_file(file, sql, parameters) if file else self._on_server(sql, parameters))
        except ToolFailed as failed:
            if not str(failed).startswith("no such "):
                raise
            raise ToolFailed(hint(str(failed), sql, self._newest().tables), failed.code) from failed

    def _on_server(self, sql: str, parameters: Any) -> Json:
        statement = self._judged(sql, parameters)
        with translated(self._caps.timeout_s):
            is_streamed = not statement.is_explain
            return server_query(self._open(), statement.sql, statement.values, self._caps, is_streamed=is_streamed)

    def _on_file(self, path: Path, sql: str, parameters: Any) -> Json:
        _existing(path)
        text, values, seen = only_statement(sql), parameters or [], None
        if is_narrow(self._scope):
            statement = self._judged(text, parameters)
            text, values, seen = statement.sql, list(statement.values), self._seen()
        return query(
            {
                "uri": _read_only(path),
                "sql": text,
                "parameters": values,
                "seen": seen,
                "max_rows": self._caps.max_rows,
                "max_bytes": self._caps.max_bytes,
                "timeout_s": self._caps.timeout_s,
            }
        )

    def _judged(self, sql: str, parameters: Any) -> "Statement":
        """Parse a statement and judge what it reads, by a newer catalog if it names what the kept one lacks."""
        # Here, as sqlglot takes 0.2 s to load and a SQLite file without a scope never needs it.
        from loom_worker.backends.parse import parse, refused
        from loom_worker.backends.resolve import Missing, judge

        marker = SERVERS[self._kind].marker if self._kind in SERVERS else "?"
        statement = parse(sql, self._kind, parameters=parameters, marker=marker)
        if statement.is_explain and is_narrow(self._scope):
            raise refused("EXPLAIN may not be used here: a plan names tables whoever may read them")
        try:
            judge(statement.tree, self._catalogs.get())
        except Missing:
            try:
                judge(statement.tree, self._newest())
            except Missing as missing:
                raise ToolFailed(str(missing), "INVALID_INPUT") from missing
        return statement

    def _seen(self) -> Seen:
        catalog = self._catalogs.get()
        return {
            table.name.lower(): [name.lower() for name, _ in table.columns] if catalog.out_of_sight(table) else None
            for table in catalog.tables
        }

    def _newest(self) -> Catalog:
        self._catalogs.drop()
        return self._catalogs.get()

    def _read(self) -> Catalog:
        if self._file is not None:
            _existing(self._file)
        with translated(self._caps.timeout_s):
            is_duckdb = self._kind == "duckdb"
            engine = self._open()
            tables = read_duckdb(engine) if is_duckdb else schema.read_tables(engine, self._scope.schemas)
        return narrow(tables, self._scope, self._kind)

    @property
    def _file(self) -> Path | None:
        return Path(self._url.database or "").absolute() if self._kind == "sqlite" else None

    @property
    def _group(self) -> str:
        """What fails together; without password, user or folder."""
        if self._url.host:
            return f"sql:{self._url.host}:{self._url.port or ''}:{self._url.database or ''}"
        path = Path(self._url.database or "").absolute()
        return f"sql:{path.name}:{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"

    @property
    def _origin(self) -> Json | None:
        """How a child process builds this backend, whose drivers may hang for ever; a file has a child of its own."""
        if self._file is not None:
            return None
        return {
            "kind": "sql",
            "url": self._url.render_as_string(hide_password=False),
            "scope": {key: getattr(self._scope, key) for key in ("schemas", "tables", "columns")},
            "max_rows": self._caps.max_rows,
            "max_result_bytes": self._caps.max_bytes,
            "timeout_s": self._caps.timeout_s,
        }

    def _open(self) -> Engine:
        with self._lock:
            if self._engine is None:
                file, limit_s = self._file, self._caps.timeout_s
                self._engine = _file_engine(file) if file else server_engine(self._url, timeout_s=limit_s)
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
    if kind in ("sqlite", "duckdb") and parsed.database in (None, "", ":memory:"):
        raise BadSettings(f"LOOM_BACKEND_URL: expected a file: {kind}:////path/of.db")
    return parsed


def _existing(path: Path) -> None:
    if not path.is_file():
        raise ToolFailed(f"the database file {path.name} does not exist", "DATABASE_ERROR")


def _file_engine(path: Path) -> Engine:
    """An engine for reflection, which needs PRAGMA; the model's SQL never runs on it."""
    uri = _read_only(path)
    connect = partial(sqlite3.connect, uri, uri=True)
    return create_engine("sqlite://", module=sqlite3, creator=connect, poolclass=NullPool)


def _read_only(path: Path) -> str:
    return f"file:{quote(str(path))}?mode=ro"
