"""What an agent may see of a database: its tables and columns after the scope has been applied, kept for a while."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from loom_worker.backends.schema import Table
from loom_worker.core.values.agents import Scope

log = logging.getLogger(__name__)

CASELESS = frozenset({"sqlite", "duckdb"})
"""Databases to which ``"Orders"`` and ``orders`` are one table; to the others they may be two."""
TTL_S = 60.0


def fold(name: str) -> str:
    """Lower-case ASCII letters only, as databases do: the Kelvin sign is not a k."""
    return "".join(letter.lower() if letter.isascii() else letter for letter in name)


@dataclass(frozen=True, slots=True)
class TableCatalog:
    """The tables an agent may read, each with the columns it may read."""

    kind: str
    """The database, as in its URL: sqlite, postgresql, mysql, mariadb or duckdb."""
    tables: tuple[Table, ...]
    hidden: Mapping[str, frozenset[str]]
    """By a table's path: keys of its columns that may not be read. Tables with no hidden columns are not listed."""
    unknown: tuple[str, ...] = ()
    """Names in the scope that the database does not have."""

    def find(self, schema: str | None, name: str) -> Table | None:
        """The table with these names, compared as the database compares them; None if no such table is visible."""
        wanted = (self.key(schema or ""), self.key(name))
        for table in self.tables:
            names = {(self.key(table.schema), self.key(table.name))}
            if table.is_default:
                names.add(("", self.key(table.name)))
            if wanted in names:
                return table
        return None

    def key(self, name: str) -> str:
        """A table's name as this database compares it."""
        return _key(name, self.kind)

    def column_key(self, name: str) -> str:
        """A column's name as this database compares it."""
        return _column_key(name, self.kind)

    def hidden_columns(self, table: Table) -> frozenset[str]:
        """Keys of the table's columns that may not be read."""
        return self.hidden.get(table.path, frozenset())


class CatalogCache:
    """The catalog of one database, read on first use and again when it is old or was found to be wrong.

    Reflecting a server's tables takes tens of milliseconds or more.
    """

    def __init__(
        self, read: Callable[[], TableCatalog], *, ttl_s: float = TTL_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._read = read
        self._ttl_s = ttl_s
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: TableCatalog | None = None
        self._read_at = 0.0

    def get(self) -> TableCatalog:
        """The catalog, at most ``ttl_s`` old; threads that ask at the same time wait for one read."""
        with self._lock:
            if self._kept is None or self._clock() - self._read_at > self._ttl_s:
                self._kept, self._read_at = self._read(), self._clock()
            return self._kept

    def newest(self) -> TableCatalog:
        """The catalog, read anew: a statement names something that the kept one does not have."""
        self.drop()
        return self.get()

    def drop(self) -> None:
        """Forget the catalog."""
        with self._lock:
            self._kept = None


def narrow(tables: Iterable[Table], scope: Scope, kind: str) -> TableCatalog:
    """Apply a scope: tables and columns it does not name, and references to them, are treated as absent.

    A bare table name stands for that table in every schema the scope names, or in the default schema.
    """
    every = tuple(tables)
    wanted = None if scope.tables is None else {_key(name, kind) for name in scope.tables}
    readable: dict[str, set[str]] = {}  # columns that the scope names, by ``table`` or ``schema.table``
    for entry in scope.columns or ():
        name, _, column = entry.rpartition(".")
        readable.setdefault(_key(name, kind), set()).add(_column_key(column, kind))
    visible: list[Table] = []
    hidden: dict[str, frozenset[str]] = {}
    for table in every:
        full, bare = _key(f"{table.schema}.{table.name}", kind), _key(table.name, kind)
        names = {full, bare} if table.is_default or scope.schemas else {full}
        if scope.schemas is not None and table.schema not in scope.schemas:
            continue
        if wanted is not None and not wanted & names:
            continue
        visible.append(table)
        columns = readable.get(full, readable.get(bare))
        if columns is not None and (out := {_column_key(name, kind) for name, _ in table.columns} - columns):
            hidden[table.path] = frozenset(out)
    paths = {table.path for table in visible}
    kept = tuple(_without_hidden(table, paths, hidden, kind) for table in visible)
    unknown = tuple(sorted(_unknown_names(scope, every, kind)))
    if unknown:  # a misspelt scope shows too little: say so where its author looks
        log.warning("the scope names what the database does not have: %s", ", ".join(unknown))
    return TableCatalog(kind, kept, hidden, unknown)


def is_narrow(scope: Scope) -> bool:
    """True if the scope leaves anything out."""
    return scope != Scope()


def _key(name: str, kind: str) -> str:
    return fold(name) if kind in CASELESS else name


def _column_key(name: str, kind: str) -> str:
    return name if kind == "postgresql" else fold(name)


def _without_hidden(table: Table, paths: set[str], hidden: Mapping[str, frozenset[str]], kind: str) -> Table:
    """The table without its hidden columns, and without references to what may not be read."""

    def is_visible(path: str, column: str) -> bool:
        return path in paths and _column_key(column, kind) not in hidden.get(path, frozenset())

    return replace(
        table,
        columns=tuple(column for column in table.columns if is_visible(table.path, column[0])),
        primary_key=tuple(name for name in table.primary_key if is_visible(table.path, name)),
        foreign_keys=tuple(
            (name, target)
            for name, target in table.foreign_keys
            if is_visible(table.path, name) and is_visible(*target.rpartition(".")[::2])
        ),
    )


def _unknown_names(scope: Scope, tables: tuple[Table, ...], kind: str) -> Iterator[str]:
    columns: dict[str, set[str]] = {}
    for table in tables:
        for form in (table.name, f"{table.schema}.{table.name}"):
            columns.setdefault(_key(form, kind), set()).update(_column_key(name, kind) for name, _ in table.columns)
    yield from (name for name in scope.tables or () if _key(name, kind) not in columns)
    for entry in scope.columns or ():
        name, _, column = entry.rpartition(".")
        if _column_key(column, kind) not in columns.get(_key(name, kind), ()):
            yield entry
    yield from set(scope.schemas or ()) - {table.schema for table in tables}
