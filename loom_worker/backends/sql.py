"""A SQL database as three tools and a schema: read-only, within a scope, capped in rows, bytes and time.

On SQLite statements run in a guarded child process; ``servers`` runs them on the other databases.
"""

import hashlib
import json
import logging
import os
import re
import subprocess
import threading
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from sqlalchemy import URL, Engine, NullPool, create_engine, make_url
from sqlalchemy.exc import ArgumentError

from loom_worker.backends import schema
from loom_worker.backends.error_text import hint, translated
from loom_worker.backends.results import encode
from loom_worker.backends.schema import CatalogCache, TableCatalog, narrow
from loom_worker.backends.servers import SERVERS, Caps, server_engine, server_query
from loom_worker.backends.sqlite_guard import GuardRequest
from loom_worker.backends.statements import (
    EXECUTE_SQL,
    GET_SCHEMA,
    LIST_TABLES,
    checked,
    has_lone_surrogate,
    names_in_backticks,
    only_statement,
    refused,
)
from loom_worker.core.child_process import module_command
from loom_worker.core.errors import BadSettings, ToolFailed
from loom_worker.core.isolation import process_env
from loom_worker.core.sqlite_driver import sqlite3
from loom_worker.core.values.agents import Scope
from loom_worker.core.values.json import Json
from loom_worker.core.values.tools import Caller, Tool

if TYPE_CHECKING:
    from loom_worker.backends.parse import Statement


log = logging.getLogger(__name__)

START_S = 0.5
"""Time for the child to start, on top of the query's own."""


def run_guarded(request: GuardRequest) -> Json:
    """Run one statement on a SQLite file that must exist; returns columns, rows, row_count and truncated.

    Raises:
        ToolFailed: the statement is refused, fails, takes too long or needs too much memory.
    """
    # -I -S: no site packages, no PYTHON* variables; the child starts in 20 ms and imports nothing but the guard.
    # Our pid lets it end with us: once the child runs, getppid could already name another process.
    command = [*module_command("loom_worker.backends.sqlite_guard", "-I", "-S"), str(os.getpid())]
    timeout_s = request["timeout_s"]
    if (named := names_in_backticks(request["sql"])) != request["sql"]:
        request = {**request, "named_sql": named if named[:7].upper() == "EXPLAIN" else f"EXPLAIN {named}"}
    try:
        sent = encode(request).encode()
    except UnicodeEncodeError as error:
        raise ToolFailed("the query contains half of a character (a lone surrogate)", "INVALID_INPUT") from error
    try:
        done = subprocess.run(
            command,
            input=sent,
            env=process_env.inherited(os.environ),
            capture_output=True,
            timeout=timeout_s + START_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        text = f"the query took longer than {timeout_s:g} s: select or group less"
        raise ToolFailed(text, "DATABASE_ERROR") from error
    if done.returncode != 0:
        text = "the query needs too much memory or processor time: select or group less"
        log.error("the guard ended with %d: %s", done.returncode, done.stderr.decode("utf-8", "replace"))
        raise ToolFailed(text, "DATABASE_ERROR")
    answer: Json = json.loads(done.stdout)
    if "failure" in answer:
        raise ToolFailed(answer["failure"], answer["code"])
    result: Json = answer["result"]
    return result


MAX_ROWS = 10_000
MAX_RESULT_BYTES = 10_000_000
EVERYTHING = Scope()
FILES = frozenset({"sqlite", "duckdb"})
"""Databases that are a file."""
_IMMUTABLE = "&immutable=1"
_QUERY = re.compile(r"(?:\?(?:[\w.-]+=[^?&]*&?)*)?\Z")
"""The end of a URL, perhaps empty; any other ``?`` belongs to the path."""
_FILE_URI = re.compile(r"\Afile:(?://(?:localhost)?(?=/))?")


class SqlBackend:
    """The tools over one database; connects on first use, and may be used from many threads."""

    def __init__(
        self,
        url: str,
        *,
        folder: Path = Path(),
        scope: Scope = EVERYTHING,
        max_rows: int = MAX_ROWS,
        max_result_bytes: int = MAX_RESULT_BYTES,
        timeout_s: float = 30.0,
    ) -> None:
        """Take a SQLAlchemy URL.

        Args:
            folder: where a relative path of a file begins.
            scope: the part of the database that is described and can be read.
            max_result_bytes: of a result's JSON text in UTF-8.
            timeout_s: of one statement.

        Raises:
            BadSettings: not a URL, or the database is not supported.
        """
        self._url = _checked(url, folder)
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
        path, origin = Path(self._url.database or ""), None
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
            BadSettings: its file does not exist or cannot be read, or its driver is not installed.
        """
        if self._kind in FILES and (fault := _fault(file := Path(self._url.database or ""))):
            raise BadSettings(f"{file}: {fault}")
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
        """Schemas, tables and columns that the scope names and the database does not have."""
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
            statement = self._authorized(sql, parameters)
            with translated(self._caps.timeout_s):
                is_streamed = not statement.is_explain
                found = server_query(self._open(), statement.sql, statement.values, self._caps, is_streamed=is_streamed)
            return encode(found)
        except ToolFailed as failed:
            if not str(failed).startswith("no such "):
                raise
            raise ToolFailed(hint(str(failed), sql, self._catalogs.newest().tables), failed.code) from failed

    def _on_file(self, path: Path, sql: str, parameters: Any) -> Json:
        text, values, seen = only_statement(sql), parameters or [], None
        if self._scope != EVERYTHING:
            statement, catalog = self._authorized(text, parameters), self._catalogs.get()
            text, values = statement.sql, list(statement.values)
            seen = {
                table.name.lower(): [name.lower() for name, _ in table.columns]
                if catalog.hidden_columns(table)
                else None
                for table in catalog.tables
            }
        uri, stamp = self._uri(path), path.stat().st_mtime_ns
        found = run_guarded(
            {
                "uri": uri,
                "sql": text,
                "parameters": values,
                "seen": seen,
                "max_rows": self._caps.max_rows,
                "max_bytes": self._caps.max_bytes,
                "timeout_s": self._caps.timeout_s,
            }
        )
        if uri.endswith(_IMMUTABLE) and stamp != path.stat().st_mtime_ns:
            raise ToolFailed("the database was changed meanwhile: ask again", "DATABASE_ERROR")
        return found

    def _authorized(self, sql: str, parameters: Any) -> "Statement":
        """Parse a statement and judge what it reads, by a newer catalog if the kept one lacks a name."""
        # Imported here: sqlglot takes 0.2 s to load, and a SQLite file without a scope never needs it.
        from loom_worker.backends.parse import Missing, judge, parse

        marker = SERVERS[self._kind].marker if self._kind in SERVERS else "?"
        statement = parse(sql, self._kind, parameters=parameters, marker=marker)
        if statement.is_explain and self._scope != EVERYTHING:
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
        with translated(self._caps.timeout_s):
            engine = self._open()
            if self._kind == "duckdb":
                tables = schema.read_duckdb(engine)
            else:
                tables = schema.read_tables(engine, self._scope.schemas)
        return narrow(tables, self._scope, self._kind)

    @property
    def _file(self) -> Path | None:
        return Path(self._url.database or "") if self._kind == "sqlite" else None

    def _uri(self, path: Path) -> str:
        """The URI by which SQLite opens the file, for reading alone.

        In WAL mode it makes a ``-shm`` beside the file (https://sqlite.org/wal.html#readonly). Where it may not, the
        file is opened as immutable, which is sound while no other process has it open.
        """
        if fault := _fault(path):
            text = f"the database file {path.name}: {fault}; `loom doctor` names the path and where it is set"
            raise ToolFailed(text, "DATABASE_ERROR")
        given = {name: value for name, value in self._url.query.items() if name in ("immutable", "nolock")}
        uri = f"file:{quote(str(path))}?{urlencode({'mode': 'ro', **given})}"
        if os.access((real := path.resolve()).parent, os.W_OK) or _opens(uri):
            return uri
        beside = (real.with_name(f"{real.name}-{kind}") for kind in ("wal", "journal", "shm"))
        if changes := next((each.name for each in beside if each.exists() and each.stat().st_size), None):
            text = f"{path.name} has changes in {changes}, which cannot be read in a folder that may not be written: "
            raise ToolFailed(text + "have somebody open it there once with `sqlite3` and close it", "DATABASE_ERROR")
        return uri + _IMMUTABLE

    def _open(self) -> Engine:
        with self._lock:
            if self._engine is None and (path := self._file) is not None:
                # For reflection, which needs PRAGMA; the model's SQL never runs on it.
                how: Json = {"poolclass": NullPool, "creator": lambda: sqlite3.connect(self._uri(path), uri=True)}
                self._engine = create_engine("sqlite://", module=sqlite3, **how)
            elif self._engine is None:
                self._engine = server_engine(self._url, timeout_s=self._caps.timeout_s)
            return self._engine


def _checked(url: str, folder: Path) -> URL:
    """The URL; that of a file with its absolute path."""
    if url.startswith(tuple(FILES)) and (query := _QUERY.search(url)):
        url = url[: query.start()].replace("?", "%3F") + query.group()
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        # The text is not repeated: it may hold a password.
        raise BadSettings("LOOM_BACKEND_URL: expected a SQLAlchemy URL such as sqlite:////path/of.db") from error
    kind = parsed.get_backend_name()
    if kind != "sqlite" and kind not in SERVERS:
        raise BadSettings(f"LOOM_BACKEND_URL: {kind} is not served; expected sqlite, {', '.join(sorted(SERVERS))}")
    if kind not in FILES:
        return parsed
    path = _FILE_URI.sub("", parsed.database or "")
    if path in ("", ":memory:") or parsed.query.get("mode") == "memory":
        raise BadSettings(f"LOOM_BACKEND_URL: expected a file: {kind}:////path/of.db")
    return parsed.set(database=str(folder.absolute() / path))


def _fault(path: Path) -> str | None:
    """Why a database file cannot be read; it is not opened, which would drop this process's locks on it."""
    try:
        if not path.is_file():
            return "no such file"
    except OSError as error:
        return str(error.strerror)
    return None if os.access(path, os.R_OK) else "it may not be read"


def _opens(uri: str) -> bool:
    """False if SQLite would have to write beside the file; any other error is left to the statement."""
    try:
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            connection.execute("PRAGMA schema_version")
    except sqlite3.Error as error:
        return not re.search("unable to open|readonly", str(error))
    return True
