"""The program that runs one of the model's statements on a SQLite file, in a process of its own.

Opening read-only does not make SQLite a safe tool: ATTACH writes other files, VACUUM INTO copies this one out, and
zeroblob or instr run for seconds past a progress handler. So there are five walls, each for what the others cannot:
the file is opened ``mode=ro`` by its URI; an authorizer knows the few actions, functions and tables that are
harmless; limits bound texts and programs; a progress handler ends loops; and the process itself, with limits on
memory and processor time, is killed by its parent. The last is not optional: a statement of 29 nested CTEs, each used
twice, doubles 29 times while it is *prepared*, where SQLite 3.40 calls neither handler and heeds no interrupt (it
took a machine's memory in seconds).

Request and answer are one JSON object each, on stdin and stdout. ``sql`` is the other end.
"""

import contextlib
import json
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Mapping
from typing import NotRequired, TypedDict

from loom_worker.backends.results import TooWide, collect, encode
from loom_worker.core.values.json import Json

MAX_MEMORY_BYTES = 512 * 1024 * 1024
STEPS_BETWEEN_CHECKS = 1000

FUNCTIONS = frozenset(
    """
    abs char coalesce concat concat_ws format glob hex ifnull iif instr length like likelihood likely lower ltrim max
    min nullif octet_length printf quote replace round rtrim sign soundex substr substring trim typeof unhex unicode
    unlikely upper
    date time datetime julianday strftime timediff unixepoch current_date current_time current_timestamp
    avg count group_concat string_agg sum total median percentile
    row_number rank dense_rank percent_rank cume_dist ntile lag lead first_value last_value nth_value
    acos asin atan atan2 ceil ceiling cos cosh degrees exp floor ln log log10 log2 mod pi pow power radians sin sinh
    sqrt tan tanh trunc
    json json_array json_array_length json_extract json_group_array json_group_object json_object json_patch
    json_quote json_remove json_replace json_set json_type json_valid -> ->>
    match bm25 highlight snippet
    """.split()
)
"""Functions that compute from their arguments alone; no random*, load_extension, fts3_tokenizer, writefile, edit."""

TABLE_FUNCTIONS = frozenset({"json_each", "json_tree", "generate_series"})

LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: 1_000_000,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 100_000,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 50,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 200,
    sqlite3.SQLITE_LIMIT_VDBE_OP: 25_000,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 200,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 0,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}

_FAULTS = frozenset(
    {
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_NOTADB,
    }
)
"""Codes that are not the statement's own fault: they become DATABASE_ERROR, all others INVALID_INPUT."""


Seen = Mapping[str, list[str] | None]
"""By a table's name in lower case: its columns that may be read, likewise; None: all of them."""

SHADOWS = ("data", "idx", "content", "docsize", "config")
"""What FTS5 keeps a table's text in: it is read through the same authorizer as the table itself."""


class GuardRequest(TypedDict):
    """What the parent asks for."""

    uri: str
    """``file:…?mode=ro``, so that no file is ever created."""
    sql: str
    max_rows: int
    max_bytes: int
    timeout_s: float
    parameters: list[object] | dict[str, object]
    """For ``?`` or ``:name``; empty: none."""
    seen: Seen | None
    """What may be read; None: every table."""
    named_sql: NotRequired[str]
    """An EXPLAIN of ``sql`` with its double-quoted names in backticks; not given: it has none."""


def guard(
    connection: sqlite3.Connection, *, timeout_s: float, parent_pid: int | None = None, seen: Seen | None = None
) -> None:
    """Prepare a connection for the model's SQL: authorized, limited, and stopped ``timeout_s`` from now.

    Args:
        parent_pid: also stopped once this process is no longer our parent, as nobody would read the answer.
        seen: what may be read. A view in it may read the tables it is made of; a WITH with the view's name could pass
            for it, so ``resolve`` has refused such statements before.

    Raises:
        sqlite3.Error: the file is not a database.
    """
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    # In memory, where the process's limit holds: a runaway sort on disk would fill it within the time allowed.
    connection.execute("PRAGMA temp_store=MEMORY")
    modules = {str(name).lower() for (name,) in connection.execute("SELECT name FROM pragma_module_list")}
    virtual = _connect_virtual_tables(connection)
    for category, limit in LIMITS.items():
        connection.setlimit(category, limit)
    deadline = time.monotonic() + timeout_s
    connection.set_progress_handler(
        lambda: time.monotonic() > deadline or parent_pid not in (None, os.getppid()), STEPS_BETWEEN_CHECKS
    )
    if seen is not None:
        shadows = {f"{name.lower()}_{part}": None for name in virtual if name.lower() in seen for part in SHADOWS}
        seen = {**seen, **shadows}
    connection.set_authorizer(_authorizer(frozenset(modules) - TABLE_FUNCTIONS, seen))


def _connect_virtual_tables(connection: sqlite3.Connection) -> list[str]:
    """Let virtual tables set themselves up now: they declare their columns by actions that are denied later."""
    virtual = connection.execute("SELECT name FROM sqlite_master WHERE sql LIKE 'CREATE VIRTUAL %'").fetchall()
    names = [*sorted(TABLE_FUNCTIONS), *(name for (name,) in virtual)]
    for name in names:
        quoted = name.replace('"', '""')
        with contextlib.suppress(sqlite3.Error):  # a table whose module is not built in stays unreadable
            connection.execute(f'PRAGMA table_info("{quoted}")').fetchall()
    return names


def _authorizer(
    modules: frozenset[str], seen: Seen | None
) -> Callable[[int, str | None, str | None, str | None, str | None], int]:
    """Allow reading tables, calling harmless functions and recursion; deny everything else, known or yet to come."""

    def authorize(action: int, first: str | None, second: str | None, _base: str | None, source: str | None) -> int:
        match action:
            case sqlite3.SQLITE_SELECT | sqlite3.SQLITE_RECURSIVE:
                is_allowed = True
            case sqlite3.SQLITE_READ:
                name = (first or "").lower()
                is_allowed = name not in modules and not name.startswith("pragma_")
                is_allowed &= seen is None or name in TABLE_FUNCTIONS or _is_seen(seen, name, second, source)
            case sqlite3.SQLITE_FUNCTION:
                is_allowed = (second or "").lower() in FUNCTIONS
            case sqlite3.SQLITE_PRAGMA:
                # A counter that FTS5 asks for whenever one of its tables is read; no other, and never set.
                is_allowed = first == "data_version" and second is None
            case _:
                is_allowed = False
        return sqlite3.SQLITE_OK if is_allowed else sqlite3.SQLITE_DENY

    return authorize


def _is_seen(seen: Seen, table: str, column: str | None, source: str | None) -> bool:
    """True for a readable column, for the table itself, and for what a readable view is made of."""
    if source is not None and source.lower() in seen:
        return True
    columns = seen.get(table)
    return table in seen and (columns is None or not column or column.lower() in columns)


def answer(request: GuardRequest, *, parent_pid: int | None = None) -> Json:
    """Run the statement; returns ``{"result": …}`` or ``{"failure": …, "code": …}`` with the reason for the model."""
    try:
        opened = sqlite3.connect(request["uri"], uri=True, timeout=request["timeout_s"] / 2, isolation_level=None)
        with contextlib.closing(opened) as connection:
            guard(connection, timeout_s=request["timeout_s"], parent_pid=parent_pid, seen=request["seen"])
            if "named_sql" in request:
                _find_names(connection, request)
            cursor = connection.execute(request["sql"], request["parameters"])
            names = [column[0] for column in cursor.description or ()]
            caps = {"max_rows": request["max_rows"], "max_bytes": request["max_bytes"]}
            return {"result": collect(names, cursor.fetchmany, **caps)}
    except sqlite3.Error as error:
        return _failure(error, request)
    except TooWide as error:
        return {"failure": str(error), "code": "INVALID_INPUT"}
    except (OverflowError, ValueError) as error:  # a value that the module cannot bind, or a text that it cannot read
        return {"failure": f"the statement or a parameter cannot be used: {error}", "code": "INVALID_INPUT"}
    except MemoryError:
        return {"failure": "the query needs too much memory: select or group less", "code": "DATABASE_ERROR"}


def _find_names(connection: sqlite3.Connection, request: GuardRequest) -> None:
    """Raise ``no such column`` for a double-quoted name that SQLite would take for a text.

    SQLITE_DBCONFIG_DQS_DML would do so too, but needs Python 3.12 and breaks views that hold such texts.
    """
    try:
        connection.execute(request["named_sql"], request["parameters"]).close()
    except sqlite3.Error as error:  # ``sql`` itself tells any other error, and keeps the names of its columns
        if str(error).startswith("no such column"):
            raise


def _failure(error: sqlite3.Error, request: GuardRequest) -> Json:
    # The low byte is the primary code; errors of the Python module itself carry none and are the statement's fault.
    fault = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if request["seen"] is not None and ("prohibited" in str(error) or str(error) == "not authorized"):
        # SQLite's text would name the column, and so tell that it is there.
        return {"failure": "this reads a table or column that may not be read", "code": "INVALID_INPUT"}
    if "authoriz" in str(error) or "prohibited" in str(error):
        return {"failure": f"read-only, tables and harmless functions only: {error}", "code": "INVALID_INPUT"}
    texts = {
        sqlite3.SQLITE_INTERRUPT: f"the query took longer than {request['timeout_s']:g} s: select or group less",
        sqlite3.SQLITE_TOOBIG: "a text or blob of the query is longer than 1,000,000 bytes",
    }
    code = "DATABASE_ERROR" if fault in _FAULTS else "INVALID_INPUT"
    return {"failure": texts.get(fault, str(error)), "code": code}


def _limit_process(timeout_s: float) -> None:
    """Bound memory and processor time, even if the parent dies and nobody is left to kill this process."""
    with contextlib.suppress(ImportError, OSError, ValueError):  # Windows has no limits; some systems refuse them
        import resource

        seconds = int(timeout_s) + 2
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main() -> None:
    """Read a request from stdin and write the answer to stdout; ``sys.argv[2]`` is the parent's pid."""
    request: GuardRequest = json.loads(sys.stdin.buffer.read())
    _limit_process(request["timeout_s"])
    sys.stdout.buffer.write(encode(answer(request, parent_pid=int(sys.argv[2]))).encode())
