"""What a model may send to a SQL database: the three tools, the text of a statement and the values bound to it. Pure.

``only_statement`` decides what may run on SQLite, whose authorizer judges the rest; ``parse`` does so for the others.
A value that a driver cannot take raises what no database raised, and would count against the database.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence

from loom_worker.core.errors import ToolFailed
from loom_worker.core.values.chat import ToolSpec, object_schema

Parameters = Mapping[str, object] | Sequence[object]

MAX_SQL_CHARS = 20_000
READING = ("SELECT", "WITH", "VALUES", "EXPLAIN")
ONLY_READING = "read-only: a statement begins with " + ", ".join(READING)
ONE_AT_A_TIME = "one statement at a time: send the others in calls of their own"
"""First words a statement may have. Authorizer or read-only transaction of the database judge what follows."""
SQLITE_BITS = 63
"""Bits of a whole number, without its sign."""
MOST_DIGITS = 38
"""Digits of a whole number on the other databases: what the widest decimal types of all of them hold."""
MAX_TABLES = 20
"""Tables that one ``get_schema`` describes."""

_SCALAR = {"type": ["string", "number", "boolean", "null"]}

LIST_TABLES = ToolSpec(
    "list_tables",
    "List the tables of the database, each with its number of columns.",
    object_schema(),
)
GET_SCHEMA = ToolSpec(
    "get_schema",
    "Show columns, types and keys of tables. Use it before you write SQL on a table whose columns you do not know.",
    object_schema(
        "tables",
        tables={
            "type": "array",
            "items": {"type": "string", "minLength": 1, "maxLength": 200},
            "minItems": 1,
            "maxItems": MAX_TABLES,
            "description": "Names as list_tables gives them.",
        },
    ),
)
EXECUTE_SQL = ToolSpec(
    "execute_sql",
    "Run one SELECT (or WITH … SELECT) and return its columns and rows. Results are capped, and truncated says so: "
    "aggregate, filter and LIMIT in SQL rather than fetch many rows.",
    object_schema(
        "sql",
        sql={
            "type": "string",
            "minLength": 1,
            "maxLength": MAX_SQL_CHARS,
            "description": "One statement in the database's own dialect.",
        },
        parameters={
            "description": "Values bound to the statement: an object for :name, an array for ?.",
            "anyOf": [
                {"type": "object", "additionalProperties": _SCALAR, "maxProperties": 100},
                {"type": "array", "items": _SCALAR, "maxItems": 100},
            ],
        },
    ),
)

_PIECE = re.compile(
    r"""(?P<quoted>'(?:[^']|'')*'?|"(?:[^"]|"")*"?|`[^`]*`?|\[[^\]]*\]?)"""
    r"""|(?P<blank>\s+|--[^\n]*|/\*.*?(?:\*/|\Z))"""
    r"""|(?P<end>;)"""
    r"""|(?P<code>[^\s'"`\[;/-]+|.)""",
    re.DOTALL,
)


def refused(text: str) -> ToolFailed:
    """The failure of a statement that the model can correct."""
    return ToolFailed(text, "INVALID_INPUT")


def check_length(sql: str) -> None:
    """Refuse a text that is too long, or that a driver would end at a NUL."""
    if len(sql) > MAX_SQL_CHARS or "\0" in sql:
        raise refused(f"the SQL is longer than {MAX_SQL_CHARS} characters or holds a NUL")


def only_statement(sql: str) -> str:
    """Return the one statement of ``sql``, without surrounding blanks and comments or a final semicolon.

    Raises:
        ToolFailed: there is no statement or more than one, it is too long, or its first word is not in READING.
    """
    check_length(sql)
    pieces = [piece for piece in _PIECE.finditer(sql) if piece.lastgroup != "blank"]
    kinds = [piece.lastgroup for piece in pieces]
    last = kinds.index("end") if "end" in kinds else len(pieces)
    if set(kinds[last:]) - {"end"}:
        raise refused(ONE_AT_A_TIME)
    words = [piece.group() for piece in pieces[:last]]
    if not words or not words[0].lstrip("(").upper().startswith(READING):
        raise refused(ONLY_READING)
    return sql[pieces[0].start() : pieces[last - 1].end()]


def names_in_backticks(sql: str) -> str:
    """The statement with its double-quoted names in backticks: in these SQLite never takes a name for a text."""

    def rewritten(piece: re.Match[str]) -> str:
        text = piece.group()
        is_name = text.startswith('"') and text.count('"') % 2 == 0
        return "`{}`".format(text[1:-1].replace('""', '"').replace("`", "``")) if is_name else text

    return _PIECE.sub(rewritten, sql)


def checked(parameters: Parameters | None, kind: str) -> Parameters | None:
    """Return the parameters if every driver takes them.

    Args:
        kind: of the database, as SQLAlchemy names it.

    Raises:
        ToolFailed: INVALID_INPUT, with the parameter's name or number and what is wrong with it.
    """
    named: Iterable[tuple[object, object]] = enumerate(parameters or (), start=1)
    if isinstance(parameters, Mapping):
        named = parameters.items()
    for name, value in named:
        error = None
        match value:
            case bool():
                pass
            case int() if kind == "sqlite" and not -(1 << SQLITE_BITS) <= value < 1 << SQLITE_BITS:
                error = "is a whole number of more than 64 bits: give it as text"
            case int() if kind != "sqlite" and abs(value) >= 10**MOST_DIGITS:
                error = f"is a whole number of more than {MOST_DIGITS} digits: give it as text"
            case float() if not math.isfinite(value):
                error = "is not a finite number"
            case str() if has_lone_surrogate(value):
                error = "contains half of a character (a lone surrogate)"
        if error is not None:
            raise ToolFailed(f"parameter {str(name)[:100]!r} {error}", "INVALID_INPUT")
    return parameters


def has_lone_surrogate(text: str) -> bool:
    """True for text with half of a surrogate pair, which no encoding has bytes for."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False
