"""Reads a database's tables, leaves out what an agent may not see, and describes them in one order for the model."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from sqlalchemy import Engine, inspect
from sqlalchemy.engine.interfaces import ReflectedForeignKeyConstraint
from sqlalchemy.engine.reflection import ObjectKind
from sqlalchemy.types import NullType

from loom_worker.core.text import is_plain, one_line
from loom_worker.core.values.agents import Scope
from loom_worker.core.values.json import Json

MAX_DESCRIPTION_CHARS = 12_000
"""Characters of the schema text in the system prompt; tables that do not fit are only named."""
SYSTEM_SCHEMAS = frozenset({"information_schema", "pg_catalog", "mysql", "performance_schema", "sys"})
"""Never read or shown, whatever the scope says: an agent learns about tables from the tools."""
DUCKDB_SCHEMA = "main"
"""The schema that a bare name stands for in DuckDB."""

_DUCKDB_COLUMNS = """
    SELECT schema_name, table_name, column_name, data_type FROM duckdb_columns()
    WHERE database_name = current_database() AND NOT internal ORDER BY schema_name, table_name, column_index
"""
_DUCKDB_KEYS = """
    SELECT schema_name, table_name, constraint_type, constraint_column_names,
           referenced_table, referenced_column_names
    FROM duckdb_constraints()
    WHERE database_name = current_database() AND constraint_type IN ('PRIMARY KEY', 'FOREIGN KEY')
"""


@dataclass(frozen=True, slots=True)
class Table:
    """A table or view."""

    name: str
    columns: tuple[tuple[str, str], ...]
    """Name and type, in the table's own order."""
    primary_key: tuple[str, ...]
    foreign_keys: tuple[tuple[str, str], ...]
    """Columns and what they refer to, such as ``("order_id", "orders.id")``, sorted by column."""
    schema: str = ""
    is_default: bool = True
    """True if the table is in the schema that a bare name stands for."""

    @property
    def path(self) -> str:
        """The table's name in a statement: ``orders``, or ``sales.orders`` outside the default schema."""
        return self.name if self.is_default else f"{self.schema}.{self.name}"

    def as_json(self) -> Json:
        """The table as ``get_schema`` returns it."""
        return {
            "name": self.path,
            "columns": [{"name": name, "type": type_name} for name, type_name in self.columns],
            "primary_key": list(self.primary_key),
            "foreign_keys": [f"{column} -> {target}" for column, target in self.foreign_keys],
        }

    def line(self) -> str:
        """The table on one line: ``orders(id INTEGER PK, store_id INTEGER -> stores.id)``; only plain names."""
        targets = {name: target for name, target in self.foreign_keys if is_plain(target)}
        columns = []
        for name, type_name in self.columns:
            if not is_plain(name):
                continue
            key = " PK" if name in self.primary_key else ""
            target = f" -> {targets[name]}" if name in targets else ""
            columns.append(f"{name} {one_line(type_name)}".rstrip() + key + target)
        return f"{self.path}({', '.join(columns)})"


def read_tables(engine: Engine, schemas: tuple[str, ...] | None = None) -> tuple[Table, ...]:
    """Reflect tables and views, those of the default schema first, each sorted by name.

    Args:
        schemas: the schemas to read; None: the default schema and, in PostgreSQL, all but the system's.

    Raises:
        SQLAlchemyError: the database does not answer.
    """
    tables = []
    with engine.connect() as connection:
        inspector = inspect(connection)
        default = inspector.default_schema_name or ""
        if schemas is None:
            is_postgresql = engine.dialect.name == "postgresql"
            schemas = tuple(inspector.get_schema_names()) if is_postgresql else (default,)
        for schema in (name for name in schemas if name not in SYSTEM_SCHEMAS):
            reflected = None if schema == default else schema
            columns = inspector.get_multi_columns(schema=reflected, kind=ObjectKind.ANY)
            keys = inspector.get_multi_pk_constraint(schema=reflected, kind=ObjectKind.ANY)
            references = inspector.get_multi_foreign_keys(schema=reflected, kind=ObjectKind.ANY)
            for key, found in columns.items():
                typed = tuple(
                    (each["name"], "" if isinstance(each["type"], NullType) else each["type"].compile(engine.dialect))
                    for each in found
                )
                primary = keys.get(key)
                primary_key = tuple(primary["constrained_columns"]) if primary else ()
                links = _links(references.get(key) or (), default)
                tables.append(Table(key[1], typed, primary_key, links, schema, reflected is None))
    return _ordered(tables)


def _links(references: Iterable[ReflectedForeignKeyConstraint], default: str) -> tuple[tuple[str, str], ...]:
    links = []
    for link in references:
        schema, name = link["referred_schema"], link["referred_table"]
        path = name if schema in (None, default) else f"{schema}.{name}"
        pairs = zip(link["constrained_columns"], link["referred_columns"], strict=False)
        links += [(column, f"{path}.{target}") for column, target in pairs]
    return tuple(sorted(links))


def read_duckdb(engine: Engine) -> tuple[Table, ...]:
    """Read tables and views of a DuckDB file, those of ``main`` first, each sorted by name.

    From DuckDB's own catalogue, as it does not answer what SQLAlchemy asks PostgreSQL.

    Raises:
        SQLAlchemyError: the file cannot be read.
    """
    with engine.connect() as connection:
        columns = connection.exec_driver_sql(_DUCKDB_COLUMNS).fetchall()
        keys = connection.exec_driver_sql(_DUCKDB_KEYS).fetchall()
    tables = []
    for (schema, name), rows in groupby(columns, key=lambda row: (row[0], row[1])):
        typed = tuple((column, type_name) for _, _, column, type_name in rows)
        constraints = [key for key in keys if (key[0], key[1]) == (schema, name)]
        tables.append(_duckdb_table(schema, name, typed, constraints))
    return _ordered(tables)


def _duckdb_table(
    schema: str, name: str, columns: tuple[tuple[str, str], ...], constraints: Iterable[Sequence[object]]
) -> Table:
    primary: tuple[str, ...] = ()
    links: list[tuple[str, str]] = []
    for _, _, kind, names, target, target_names in constraints:
        if kind == "PRIMARY KEY" and isinstance(names, list):
            primary = tuple(names)
        elif isinstance(names, list) and isinstance(target_names, list):
            # DuckDB has no foreign keys into other schemas.
            path = str(target) if schema == DUCKDB_SCHEMA else f"{schema}.{target}"
            links += [(column, f"{path}.{other}") for column, other in zip(names, target_names, strict=True)]
    return Table(name, columns, primary, tuple(sorted(links)), schema, schema == DUCKDB_SCHEMA)


def _ordered(tables: Iterable[Table]) -> tuple[Table, ...]:
    return tuple(sorted(tables, key=lambda table: (not table.is_default, table.schema, table.name)))


def describe(tables: Iterable[Table], dialect: str) -> str:
    """Describe the schema for the system prompt, one line per table; the same schema gives the same bytes.

    Names that cannot be shown exactly as they are get left out: a statement with any other name would find nothing.
    """
    every = tuple(tables)
    shown = tuple(table for table in every if is_plain(table.path))
    lines = [f"SQL dialect: {dialect}. Tables (PK: primary key, ->: refers to):"]
    only_named = []
    left = MAX_DESCRIPTION_CHARS
    for table in shown:
        left -= len(table.line()) + 1
        if left >= 0:
            lines.append(table.line())
        else:
            only_named.append(table.path)
    if only_named:
        names = ", ".join(only_named)[:MAX_DESCRIPTION_CHARS]
        lines.append(f"Further tables (ask get_schema for their columns): {names}")
    tables_out = len(every) - len(shown)
    columns_out = sum(not is_plain(name) for table in shown for name, _ in table.columns)
    if out := [f"{count} {what}" for count, what in ((tables_out, "tables"), (columns_out, "columns")) if count]:
        lines.append(f"Left out, for their names are too long or hold what cannot be seen: {', '.join(out)}")
    return "\n".join(lines)


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
