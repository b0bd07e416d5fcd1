"""SQL that the databases write differently. No other module knows which of them it speaks to."""

from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Integer,
    Select,
    String,
    Table,
    Text,
    bindparam,
    case,
    select,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

COUNTER = BigInteger().with_variant(Integer(), "sqlite")
"""The type of a key that counts up by itself: SQLite gives such numbers to INTEGER alone."""


def upsert(table: Table) -> postgresql.Insert:
    """An INSERT that may say what to do ON CONFLICT: both databases read PostgreSQL's form."""
    return postgresql.insert(table)


def number_of(condition: ColumnElement[bool]) -> ColumnElement[int]:
    """1 where a condition is true, else 0."""
    return case((condition, 1), else_=0)


def month_of(moment_ms: ColumnElement[int]) -> ColumnElement[str]:
    """The month in UTC of a moment in ms since 1970, as 2026-11."""
    return _Month(moment_ms)


def is_postgresql(tx: Connection) -> bool:
    """True on PostgreSQL, False on SQLite."""
    return tx.dialect.name == "postgresql"


def json_list(name: str) -> Select[Any]:
    """The texts of a list that is one parameter, as JSON: SQLAlchemy takes 1 ms to spread a hundred."""
    return select(_JsonValues(bindparam(name, type_=Text)).table_valued("value").c.value)


def json_numbers(name: str) -> Select[Any]:
    """As ``json_list``, of whole numbers."""
    return select(_Number(_JsonValues(bindparam(name, type_=Text)).table_valued("value").c.value))


def joined(numbers: Select[Any]) -> Select[Any]:
    """The numbers that a query finds, in its order, as one text with commas between them."""
    return select(_Joined(*numbers.subquery().c))


class _JsonValues(FunctionElement[str]):
    inherit_cache = True


class _Number(FunctionElement[int]):
    type = BigInteger()
    inherit_cache = True


class _Month(FunctionElement[str]):
    type = String()
    inherit_cache = True


class _Joined(FunctionElement[str]):
    type = Text()
    inherit_cache = True


def _written(element: type[FunctionElement[Any]], *, sqlite: str, postgresql: str) -> None:
    """Have an element compiled as these, with its arguments for the braces."""

    def compiled_as(form: str) -> Any:
        def compiled(function: FunctionElement[Any], compiler: SQLCompiler, **options: Any) -> str:
            return form.format(compiler.process(function.clauses, **options))

        return compiled

    compiles(element)(compiled_as(sqlite))
    compiles(element, "postgresql")(compiled_as(postgresql))


_written(_JsonValues, sqlite="json_each({})", postgresql="json_array_elements_text(CAST({} AS json))")
# SQLite compares a number with each value as it is; what is cast would be compared without the column's index.
_written(_Number, sqlite="{}", postgresql="CAST({} AS bigint)")
_written(_Joined, sqlite="group_concat({})", postgresql="string_agg(CAST({} AS text), ',')")
_written(
    _Month,
    sqlite="strftime('%Y-%m', {} / 1000, 'unixepoch')",
    postgresql="to_char(to_timestamp({} / 1000) AT TIME ZONE 'UTC', 'YYYY-MM')",
)
