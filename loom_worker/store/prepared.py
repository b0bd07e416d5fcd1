"""Statements that are compiled once and run on the driver's own connection: those of a turn's way.

SQLAlchemy needs 30 to 60 us of processor time around each statement that it runs, three times what SQLite needs for
most of ours, and a plain turn runs some twenty. A prepared statement is written with SQLAlchemy as all others are, and
its columns keep their types; only the way to the driver is shorter.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Delete, Dialect, Float, Insert, Select, Update
from sqlalchemy.types import TypeEngine

FLOAT = 701
"""PostgreSQL's number of its type double precision, by which SQLAlchemy chooses how to read one."""

Statement = Select[Any] | Insert | Update | Delete
Values = Mapping[str, Any]
Row = dict[str, Any]


class PreparedStatement:
    """One statement. It is compiled once for each engine that runs it; any thread may run it."""

    def __init__(self, statement: Statement, *, columns: Iterable[str] = ()) -> None:
        """Take a statement; nothing is compiled yet.

        Args:
            columns: of an insert that does not name them itself: those that every row has.
        """
        self.statement = statement
        self._columns = tuple(columns)
        self._compiled: dict[str, _Compiled] = {}

    def ask(self, tx: Connection, values: Values) -> "PendingRow":
        """Ask for the first row that it finds; what is asked after it, and before the answer, costs no more waiting."""
        mine = self.compiled(tx.dialect)
        return PendingRow(mine, _driver(tx).execute(mine.sql, mine.parameters(values)))

    def first(self, tx: Connection, values: Values) -> Row | None:
        """The first row that it finds, None if there is none."""
        return self.ask(tx, values).answer()

    def one(self, tx: Connection, values: Values) -> Row:
        """The row of a statement that always finds one."""
        return self.ask(tx, values).one()

    def all(self, tx: Connection, values: Values) -> list[Row]:
        """All rows that it finds."""
        mine = self.compiled(tx.dialect)
        return [mine.row(found) for found in _driver(tx).execute(mine.sql, mine.parameters(values)).fetchall()]

    def run(self, tx: Connection, values: Values) -> int:
        """Write; return how many rows changed."""
        mine = self.compiled(tx.dialect)
        changed: int = _driver(tx).execute(mine.sql, mine.parameters(values)).rowcount
        return changed

    def put(self, tx: Connection, values: Values) -> None:
        """Write, where nobody needs to know how many rows changed: a server is not waited for."""
        mine = self.compiled(tx.dialect)
        _driver(tx).execute(mine.sql, mine.parameters(values))

    def run_each(self, tx: Connection, rows: Sequence[Values]) -> None:
        """Write once for each of these."""
        mine = self.compiled(tx.dialect)
        driver = _driver(tx)
        for values in rows:
            driver.execute(mine.sql, mine.parameters(values))

    def compiled(self, dialect: Dialect) -> "_Compiled":
        """The statement as the driver is given it."""
        compiled = self._compiled.get(dialect.name)
        if compiled is None:
            compiled = self._compiled[dialect.name] = _Compiled(self.statement, self._columns, dialect)
        return compiled


class PendingRow:
    """A question on its way to the database."""

    def __init__(self, compiled: "_Compiled", cursor: Any) -> None:
        self._compiled, self._cursor = compiled, cursor

    def answer(self) -> Row | None:
        """Wait for the row; None if there is none."""
        found = self._cursor.fetchone()
        return None if found is None else self._compiled.row(found)

    def one(self) -> Row:
        """The same of a statement that always finds a row."""
        return self._compiled.row(self._cursor.fetchone())


class _Compiled:
    """SQL, and how values get into it and out of its rows."""

    def __init__(self, statement: Statement, columns: Sequence[str], dialect: Dialect) -> None:
        compiled: Any = statement.compile(
            dialect=dialect,
            column_keys=list(columns) or None,
            compile_kwargs={"render_postcompile": True},  # a list of literals becomes as many placeholders
        )
        self.sql = str(compiled)
        self._names: tuple[str, ...] = tuple(compiled.positiontup)
        self._literals = {name: bind.value for name, bind in compiled.binds.items() if not bind.required}
        types = {name: bind.type for name, bind in compiled.binds.items()}
        self._into = [
            (name, process) for name in dict.fromkeys(self._names) if (process := _writer(types[name], dialect))
        ]
        found = statement.exported_columns if isinstance(statement, Select) else ()
        self._keys = tuple(str(column.key) for column in found)
        self._out_of = [(str(column.key), process) for column in found if (process := _reader(column.type, dialect))]

    def parameters(self, values: Values) -> list[Any]:
        """What the driver is given, in order.

        Raises:
            KeyError: a value is missing.
        """
        given = {**self._literals, **values}
        for name, process in self._into:
            given[name] = process(given[name])
        return [given[name] for name in self._names]

    def row(self, found: Sequence[Any]) -> Row:
        """A row by its columns' names."""
        row = dict(zip(self._keys, found, strict=True))
        for key, process in self._out_of:
            row[key] = process(row[key])
        return row


def _driver(tx: Connection) -> Any:
    """The driver's connection, on which the transaction has begun."""
    return tx.connection.dbapi_connection


def _writer(kind: TypeEngine[Any], dialect: Dialect) -> Callable[[Any], Any] | None:
    return kind.dialect_impl(dialect).bind_processor(dialect)


def _reader(kind: TypeEngine[Any], dialect: Dialect) -> Callable[[Any], Any] | None:
    return kind.dialect_impl(dialect).result_processor(dialect, FLOAT if isinstance(kind, Float) else None)
