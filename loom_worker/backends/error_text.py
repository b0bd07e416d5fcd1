"""A database's errors as text for the model: in one wording, without what drivers add, with the names likely meant."""

import difflib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DataError, DBAPIError, NotSupportedError, ProgrammingError, SQLAlchemyError

from loom_worker.backends.results import TooWide
from loom_worker.backends.schema import Table
from loom_worker.core.errors import ToolFailed

MAX_ERROR_CHARS = 2000
MOST_NEAR = 100

_TOO_LONG = re.compile(r"statement timeout|max_statement_time|maximum statement execution time|Interrupted!|timed out")
_WRONG = (ProgrammingError, DataError, NotSupportedError)
_UNKNOWN = (
    ("table", r"no such table: (?:main\.)?(?P<name>\S+)"),
    ("column", r"no such column: (?P<name>\S+)"),
    # PostgreSQL 42P01 and 42703
    ("table", r'relation "(?P<name>[^"]+)" does not exist'),
    ("column", r'column "?(?P<name>[^" ]+)"? (?:of relation \S+ )?does not exist'),
    # MySQL and MariaDB 1146 and 1054
    ("table", r"Table '(?:[^'.]+\.)?(?P<name>[^']+)' doesn't exist"),
    ("column", r"Unknown column '(?P<name>[^']+)' in "),
    # DuckDB; its own suggestions are dropped, as it does not know the scope
    ("table", r"Catalog Error: Table with name (?P<name>\S+) does not exist"),
    ("column", r'Binder Error: Referenced column "(?P<name>[^"]+)" (?:was )?not found'),
    ("column", r'Binder Error: Table "[^"]+" does not have a column named "(?P<name>[^"]+)"'),
    ("column", r'Binder Error: Values list "[^"]+" does not have a column named "(?P<name>[^"]+)"'),
)


@contextmanager
def translated(timeout_s: float) -> Iterator[None]:
    """Raise ToolFailed for whatever a database or its driver raises.

    INVALID_INPUT: the statement is wrong. UNAVAILABLE: the server does not answer. DATABASE_ERROR: anything else.
    """
    try:
        yield
    except TooWide as error:
        raise ToolFailed(str(error), "INVALID_INPUT") from error
    except DBAPIError as error:
        raise _failure(error, timeout_s) from error
    except SQLAlchemyError as error:
        raise ToolFailed(f"the database does not answer: {type(error).__name__}", "UNAVAILABLE") from error


def _failure(error: DBAPIError, timeout_s: float) -> ToolFailed:
    # The message itself. Hints and suggestions are left out: they name columns whatever the scope.
    text = getattr(getattr(error.orig, "diag", None), "message_primary", None)
    if text is None:
        arguments: tuple[object, ...] = getattr(error.orig, "args", ())
        is_numbered = len(arguments) > 1 and isinstance(arguments[0], int)  # as MySQL's are
        text = arguments[1] if is_numbered else str(error.orig)
        text = re.split(r"\n(?:Candidate|Did you mean|LINE )|\n\n", str(text))[0]
    message = " ".join(str(text).split())[:MAX_ERROR_CHARS]
    if _TOO_LONG.search(message):
        return ToolFailed(f"the query took longer than {timeout_s:g} s: select or group less", "DATABASE_ERROR")
    if missing := unknown(message):
        return ToolFailed(missing, "INVALID_INPUT")
    if error.connection_invalidated or (error.statement is None and not isinstance(error, _WRONG)):
        return ToolFailed(f"the database does not answer: {message[:200]}", "UNAVAILABLE")
    return ToolFailed(message, "INVALID_INPUT" if isinstance(error, _WRONG) else "DATABASE_ERROR")


def unknown(message: str) -> str | None:
    """``no such table: x`` or ``no such column: x`` if that is what a database's message says; otherwise None."""
    for what, pattern in _UNKNOWN:
        if found := re.match(rf"\(?(?:\d+, ['\"])?{pattern}", message):
            return f"no such {what}: {found['name']}"
    return None


def near(name: str, names: Iterable[str]) -> list[str]:
    """Sort names from the most to the least similar to ``name``."""
    return sorted(names, key=lambda each: -difflib.SequenceMatcher(None, name.lower(), each.lower()).ratio())


def hint(message: str, sql: str, tables: tuple[Table, ...]) -> str:
    """Add the names that the model needs to correct an unknown table or column, the likeliest first."""
    if missing := re.match(r"no such table: (\S+)", message):
        if not tables:
            return f"{message}; there are no tables you may read"
        return f"{message}; tables: " + ", ".join(near(missing[1], (table.path for table in tables))[:MOST_NEAR])
    if not message.startswith("no such column: "):
        return message
    wanted = message.removeprefix("no such column: ")
    if '"{}"'.format(wanted.replace('"', '""')) in sql:
        message += " (in double quotes it is a name; a text stands in single quotes)"
    wanted = wanted.rpartition(".")[2]
    used = [table for table in tables if re.search(rf"\b{re.escape(table.name)}\b", sql, re.IGNORECASE)]
    ranked = {each.path: near(wanted, (name for name, _ in each.columns))[:MOST_NEAR] for each in used if each.columns}
    order = near(wanted, (columns[0] for columns in ranked.values()))
    by_best = sorted(ranked, key=lambda path: order.index(ranked[path][0]))
    return message + "".join(f"; columns of {path}: {', '.join(ranked[path])}" for path in by_best)
