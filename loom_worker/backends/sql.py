"""A SQL database as three tools and a schema: read-only, within a scope, capped in rows, bytes and time.

On SQLite statements run in a guarded child process; ``servers`` runs them on the other databases.
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
from loom_worker.backends.error_text import hint, translated
from loom_worker.backends.results import encode
from loom_worker.backends.scope import CatalogCache, TableCatalog, is_narrow, narrow
from loom_worker.backends.servers import SERVERS, Caps, server_engine, server_query
from loom_worker.backends.sqlite_process import query
from loom_worker.backends.statements import (
    EXECUTE_SQL,
    GET_SCHEMA,
    LIST_TABLES,
    checked,
    has_lone_surrogate,
    only_statement,
)
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
    """The tools over one database; connects on first use, and may be used from many threads."""

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
            scope: the part of the database that is described and can be read.
            max_result_bytes: of a result's JSON text in UTF-8.
            timeout_s: of one statement.

        Raises:
            BadSettings: not a URL, or the database is not supported.
        """
        self._url = _checked(url)
        self._kind = self._url.get_backend_name()
        self._scope = scope
        self._caps = Caps(max_rows, max_result_bytes, timeout_s)
        self._lock = threading.Lock()
        self._engine: Engine | None = None
        self._catalogs = CatalogCache(self._read)

    @classmethod
    def from_origin(cls, origin: Json) -> "SqlBackend":
        """Build the backend in another process, from the origin of one of its tools."""
        scope = {key: None if names is None else tuple(names) for key, names in origin["scope"].items()}
        caps = {key: origin[key] for key in ("max_rows", "max_result_bytes", "timeout_s")}
        return cls(origin["url"], scope=Scope(**scope), **caps)

    def tools(self) -> tuple[Tool, ...]:
        """list_tables, get_schema and execute_sql; each waits two seconds longer than the statement's own limit."""
        path, origin = Path(self._url.database or "").absolute(), None
        # What fails together; without password, user or folder.
        group = f"sql:{path.name}:{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
        if self._url.host:
            group = f"sql:{self._url.host}:{self._url.port or ''}:{self._url.database or ''}"
        if self._file is None:  # other drivers may hang for ever; a SQLite file has a child process of its own
            origin = {
                "kind": "sql",
                "url": self._url.render_as_string(hide_password=False),
                "scope": {key: getattr(self._scope, key) for key in ("schemas", "tables", "columns")},
                "max_rows": self._caps.max_rows,
                "max_result_bytes": self._caps.max_bytes,
                "timeout_s": self._caps.timeout_s,
            }
        runs = ((LIST_TABLES, self._list_tables), (GET_SCHEMA, self._get_schema), (EXECUTE_SQL, self._execute_sql))
        limit_s = self._caps.timeout_s + 2
        return tuple(Tool(spec, run, timeout_s=limit_s, group=group, origin=origin) for spec, run in runs)

    def check(self) -> None:
        """Check that the database could be opened, without connecting.

        Raises:
            BadSettings: its file does not exist, or its driver is not installed.
        """
        if self._kind in ("sqlite", "duckdb") and not (file := Path(self._url.database or "").absolute()).is_file():
            raise BadSettings(f"{file}: no such file")
        if self._kind != "sqlite":
            self._open()

    def describe(self) -> str:
        """Describe the schema for the system prompt; the same schema gives the same bytes.

        Raises:
            ToolFailed: the database does not answer, or its file is missing.
            BadSettings: its driver is missing.
        """
        return schema.describe(self._catalogs.get().tables, self._kind)

    def unknown_names(self) -> tuple[str, ...]:
        """Schemas, tables and columns that the scope names and the database does not have.

        Raises:
            ToolFailed, BadSettings: see describe.
        """
        return self._catalogs.get().unknown

    def close(self) -> None:
        """Close every connection; the next use opens new ones and reads the schema again."""
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
            tables = {table.path: table for table in self._catalogs.newest().tables}
        for name in names:
            if name not in tables:
                raise ToolFailed(hint(f"no such table: {name}", "", tuple(tables.values())), "INVALID_INPUT")
        text = encode({"tables": [tables[name].as_json() for name in names]})
        if len(text.encode()) > self._caps.max_bytes:
            raise ToolFailed(f"the schema of these {len(names)} tables is too long: ask for fewer", "INVALID_INPUT")
        return text

    def _execute_sql(self, arguments: Json, _caller: Caller) -> str:
        sql, parameters = arguments["sql"], checked(arguments.get("parameters"), self._kind)
        if has_lone_surrogate(sql):
            raise ToolFailed("the SQL contains half of a character (a lone surrogate)", "INVALID_INPUT")
        try:
            if self._file is not None:
                return encode(self._on_file(self._file, sql, parameters))
            statement = self._judged(sql, parameters)
            with translated(self._caps.timeout_s):
                is_streamed = not statement.is_explain
                found = server_query(self._open(), statement.sql, statement.values, self._caps, is_streamed=is_streamed)
            return encode(found)
        except ToolFailed as failed:
            if not str(failed).startswith("no such "):
                raise
            raise ToolFailed(hint(str(failed), sql, self._catalogs.newest().tables), failed.code) from failed

    def _on_file(self, path: Path, sql: str, parameters: Any) -> Json:
        _existing(path)
        text, values, seen = only_statement(sql), parameters or [], None
        if is_narrow(self._scope):
            statement, catalog = self._judged(text, parameters), self._catalogs.get()
            text, values = statement.sql, list(statement.values)
            seen = {
                table.name.lower(): [name.lower() for name, _ in table.columns]
                if catalog.hidden_columns(table)
                else None
                for table in catalog.tables
            }
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
        """Parse a statement and judge what it reads, by a newer catalog if the kept one lacks a name."""
        # Imported here: sqlglot takes 0.2 s to load, and a SQLite file without a scope never needs it.
        from loom_worker.backends.parse import parse, refused
        from loom_worker.backends.resolve import Missing, judge

        marker = SERVERS[self._kind].marker if self._kind in SERVERS else "?"
        statement = parse(sql, self._kind, parameters=parameters, marker=marker)
        if statement.is_explain and is_narrow(self._scope):
            raise refused("EXPLAIN may not be used here: a plan names tables outside of the scope")
        try:
            judge(statement.tree, self._catalogs.get())
        except Missing:
            try:
                judge(statement.tree, self._catalogs.newest())
            except Missing as missing:
                raise ToolFailed(str(missing), "INVALID_INPUT") from missing
        return statement

    def _read(self) -> TableCatalog:
        if self._file is not None:
            _existing(self._file)
        with translated(self._caps.timeout_s):
            engine = self._open()
            if self._kind == "duckdb":
                tables = schema.read_duckdb(engine)
            else:
                tables = schema.read_tables(engine, self._scope.schemas)
        return narrow(tables, self._scope, self._kind)

    @property
    def _file(self) -> Path | None:
        return Path(self._url.database or "").absolute() if self._kind == "sqlite" else None

    def _open(self) -> Engine:
        with self._lock:
            if self._engine is None and self._file is not None:
                # For reflection, which needs PRAGMA; the model's SQL never runs on it.
                connect = partial(sqlite3.connect, _read_only(self._file), uri=True)
                self._engine = create_engine("sqlite://", module=sqlite3, creator=connect, poolclass=NullPool)
            elif self._engine is None:
                self._engine = server_engine(self._url, timeout_s=self._caps.timeout_s)
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


def _read_only(path: Path) -> str:
    return f"file:{quote(str(path))}?mode=ro"
