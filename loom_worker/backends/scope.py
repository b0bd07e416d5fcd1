"""What of a database an agent may see: its tables and columns after the scope has been applied."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from loom_worker.backends.schema import Table
from loom_worker.core.values.agents import Scope

log = logging.getLogger(__name__)

CASELESS = frozenset({"sqlite", "duckdb"})
"""Databases to which ``"Orders"`` and ``orders`` are one table; to the others they may be two."""


def fold(name: str) -> str:
    """Lower case as databases understand it: of ASCII letters alone, so the Kelvin sign is no k."""
    return "".join(letter.lower() if letter.isascii() else letter for letter in name)


@dataclass(frozen=True, slots=True)
class Catalog:
    """The tables an agent may read, each with the columns it may read."""

    kind: str
    """The database, as in its URL: sqlite, postgresql, mysql, mariadb or duckdb."""
    tables: tuple[Table, ...]
    hidden: Mapping[str, frozenset[str]]
    """By a table's path: keys of its columns that may not be read. Tables with all their columns are not here."""
    strangers: tuple[str, ...] = ()
    """What the scope names and the database does not have."""

    def find(self, schema: str | None, name: str) -> Table | None:
        """The table of exactly these names, where the database tells case apart; None: there is none to be seen."""
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

    def out_of_sight(self, table: Table) -> frozenset[str]:
        """Keys of the table's columns that may not be read."""
        return self.hidden.get(table.path, frozenset())


def narrow(tables: Iterable[Table], scope: Scope, kind: str) -> Catalog:
    """Apply a scope: tables and columns it does not name are as if they were not there, nor are references to them.

    A bare name of a table stands for that table in every schema the scope names, or in the default schema.
    """
    every = tuple(tables)
    seen = tuple(table for table in every if _has_schema(table, scope) and _has_table(table, scope, kind))
    named = _columns(scope, kind)
    paths = {table.path for table in seen}
    hidden = {table.path: out for table in seen if (out := _hidden(table, named, kind))}
    kept = tuple(_cut(table, paths, hidden, kind) for table in seen)
    return Catalog(kind, kept, hidden, _report(scope, every, kind))


def is_narrow(scope: Scope) -> bool:
    """True if the scope leaves anything out."""
    return scope != Scope()


def _has_schema(table: Table, scope: Scope) -> bool:
    return scope.schemas is None or table.schema in scope.schemas


def _has_table(table: Table, scope: Scope, kind: str) -> bool:
    if scope.tables is None:
        return True
    wanted = {_key(name, kind) for name in scope.tables}
    bare = {_key(table.name, kind)} if table.is_default or scope.schemas else set()
    return bool(wanted & ({_key(f"{table.schema}.{table.name}", kind)} | bare))


def _columns(scope: Scope, kind: str) -> dict[str, set[str]]:
    """Of each table that the scope's columns name, the columns; by ``table`` or ``schema.table``."""
    found: dict[str, set[str]] = {}
    for entry in scope.columns or ():
        table, _, column = entry.rpartition(".")
        found.setdefault(_key(table, kind), set()).add(_column_key(column, kind))
    return found


def _hidden(table: Table, named: Mapping[str, set[str]], kind: str) -> frozenset[str]:
    full, bare = (_key(name, kind) for name in (f"{table.schema}.{table.name}", table.name))
    allowed = named.get(full, named.get(bare))
    keys = frozenset(_column_key(name, kind) for name, _ in table.columns)
    return frozenset() if allowed is None else keys - allowed


def _key(name: str, kind: str) -> str:
    return fold(name) if kind in CASELESS else name


def _column_key(name: str, kind: str) -> str:
    return name if kind == "postgresql" else fold(name)


def _cut(table: Table, paths: set[str], hidden: Mapping[str, frozenset[str]], kind: str) -> Table:
    """The table without hidden columns, and without references to what is out of sight."""

    def is_seen(path: str, column: str) -> bool:
        return path in paths and _column_key(column, kind) not in hidden.get(path, frozenset())

    return replace(
        table,
        columns=tuple(column for column in table.columns if is_seen(table.path, column[0])),
        primary_key=tuple(name for name in table.primary_key if is_seen(table.path, name)),
        foreign_keys=tuple(
            (name, target)
            for name, target in table.foreign_keys
            if is_seen(table.path, name) and is_seen(*target.rpartition(".")[::2])
        ),
    )


def strangers(scope: Scope, tables: Iterable[Table], kind: str) -> tuple[str, ...]:
    """What a scope names, as it is written there, and the database does not have."""
    every = tuple(tables)
    columns: dict[str, set[str]] = {}
    for table in every:
        for form in (table.name, f"{table.schema}.{table.name}"):
            columns.setdefault(_key(form, kind), set()).update(_column_key(name, kind) for name, _ in table.columns)
    found = [name for name in scope.tables or () if _key(name, kind) not in columns]
    for entry in scope.columns or ():
        name, _, column = entry.rpartition(".")
        found += [] if _column_key(column, kind) in columns.get(_key(name, kind), ()) else [entry]
    return (*found, *(set(scope.schemas or ()) - {table.schema for table in every}))


def _report(scope: Scope, tables: tuple[Table, ...], kind: str) -> tuple[str, ...]:
    """A misspelt scope shows too little; say so where its author looks."""
    strange = tuple(sorted(strangers(scope, tables, kind)))
    if strange:
        log.warning("the scope names what the database does not have: %s", ", ".join(strange))
    return strange
