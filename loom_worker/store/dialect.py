"""SQL that the databases write differently. No other module knows which of them it speaks to."""

from typing import Any

from sqlalchemy import BigInteger, Connection, Select, Text, bindparam, select
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement


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
