"""The places in which SQLite and PostgreSQL need different words; the rest of the store names neither.

Statements are built once and compiled for the database that runs them.
"""

from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Connection, Integer, String, Table, case
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import GenericFunction

COUNTER = BigInteger().with_variant(Integer(), "sqlite")
"""The type of a key that counts up by itself: SQLite gives such numbers to INTEGER alone."""


def upsert(table: Table) -> postgresql.Insert:
    """An INSERT that may say what to do ON CONFLICT: both databases read PostgreSQL's form."""
    return postgresql.insert(table)


def number_of(condition: ColumnElement[bool]) -> ColumnElement[int]:
    """1 where a condition is true, else 0."""
    return case((condition, 1), else_=0)


def is_postgresql(tx: Connection) -> bool:
    """True if the transaction is on PostgreSQL."""
    return tx.dialect.name == "postgresql"


class month_of(GenericFunction[str]):  # noqa: N801
    """The month in UTC of a moment in ms since 1970, as 2026-11."""

    type = String()
    inherit_cache = True


@compiles(month_of, "sqlite")
def _month_in_sqlite(element: ColumnElement[Any], compiler: Any, **options: Any) -> str:
    moment = compiler.process(element.clauses, **options)
    return f"strftime('%Y-%m', {moment} / 1000, 'unixepoch')"


@compiles(month_of, "postgresql")
def _month_in_postgresql(element: ColumnElement[Any], compiler: Any, **options: Any) -> str:
    moment = compiler.process(element.clauses, **options)
    return f"to_char(to_timestamp({moment} / 1000) AT TIME ZONE 'UTC', 'YYYY-MM')"
