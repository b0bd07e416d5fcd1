"""A database's tables as the model is told of them, always in the same order."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sqlalchemy import Engine, inspect
from sqlalchemy.engine.interfaces import ReflectedColumn
from sqlalchemy.engine.reflection import Inspector, ObjectKind
from sqlalchemy.types import NullType

from loom_worker.core.text import is_plain, one_line
from loom_worker.core.values.json import Json

MAX_DESCRIPTION_CHARS = 12_000
"""Of the schema text for the system prompt; tables beyond it are only named."""
SYSTEM_SCHEMAS = frozenset({"information_schema", "pg_catalog", "mysql", "performance_schema", "sys"})
"""Never read or shown, whatever a scope says: what an agent may know of tables, it is told by the tools."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table or view."""

    name: str
    columns: tuple[tuple[str, str], ...]
    """Name and type, in the table's own order."""
    primary_key: tuple[str, ...]
    foreign_keys: tuple[tuple[str, str], ...]
    """Column and what it refers to, such as ``("order_id", "orders.id")``, by column."""
    schema: str = ""
    is_default: bool = True
    """True: it is in the schema that a bare name stands for."""

    @property
    def path(self) -> str:
        """The name a statement calls it by: ``orders``, or ``sales.orders`` in a schema that is not the default."""
        return self.name if self.is_default else f"{self.schema}.{self.name}"

    def as_json(self) -> Json:
        """The table as ``get_schema`` gives it."""
        return {
            "name": self.path,
            "columns": [{"name": name, "type": type_name} for name, type_name in self.columns],
            "primary_key": list(self.primary_key),
            "foreign_keys": [f"{column} -> {target}" for column, target in self.foreign_keys],
        }

    def line(self) -> str:
        """The table in one line: ``orders(id INTEGER PK, store_id INTEGER -> stores.id)``; no name but plain ones."""
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
        schemas: those to read; None: the default schema and, in PostgreSQL, all that are not the system's.

    Raises:
        SQLAlchemyError: the database does not answer.
    """
    with engine.connect() as connection:
        inspector = inspect(connection)
        default = inspector.default_schema_name or ""
        if schemas is None:
            is_postgresql = engine.dialect.name == "postgresql"
            schemas = tuple(inspector.get_schema_names()) if is_postgresql else (default,)
        wanted = [name for name in schemas if name not in SYSTEM_SCHEMAS]
        found = [table for name in wanted for table in _of_schema(inspector, name, default, engine)]
    return tuple(sorted(found, key=lambda table: (not table.is_default, table.schema, table.name)))


def _of_schema(inspector: Inspector, schema: str, default: str, engine: Engine) -> Iterator[Table]:
    place = None if schema == default else schema
    columns = inspector.get_multi_columns(schema=place, kind=ObjectKind.ANY)
    keys = inspector.get_multi_pk_constraint(schema=place, kind=ObjectKind.ANY)
    references = inspector.get_multi_foreign_keys(schema=place, kind=ObjectKind.ANY)
    for key, found in columns.items():
        links = [
            (column, f"{_path(link['referred_schema'], link['referred_table'], default)}.{target}")
            for link in references.get(key) or ()
            for column, target in zip(link["constrained_columns"], link["referred_columns"], strict=False)
        ]
        primary = keys.get(key)
        primary_key = tuple(primary["constrained_columns"]) if primary else ()
        typed = tuple((column["name"], _type_name(column, engine)) for column in found)
        yield Table(key[1], typed, primary_key, tuple(sorted(links)), schema, place is None)


def _path(schema: str | None, name: str, default: str) -> str:
    return name if schema in (None, default) else f"{schema}.{name}"


def _type_name(column: ReflectedColumn, engine: Engine) -> str:
    kind = column["type"]
    return "" if isinstance(kind, NullType) else kind.compile(dialect=engine.dialect)


def describe(tables: Iterable[Table], dialect: str) -> str:
    """The schema for the system prompt, a line for each table; the same bytes for the same schema.

    A name that a line cannot show just as it is is left out, as a statement with another one would find nothing.
    """
    every = tuple(tables)
    shown = tuple(table for table in every if is_plain(table.path))
    lines = [f"SQL dialect: {dialect}. Tables (PK: primary key, ->: refers to):"]
    unsaid = []
    room = MAX_DESCRIPTION_CHARS
    for table in shown:
        room -= len(table.line()) + 1
        if room >= 0:
            lines.append(table.line())
        else:
            unsaid.append(table.path)
    if unsaid:
        names = ", ".join(unsaid)[:MAX_DESCRIPTION_CHARS]
        lines.append(f"Further tables (ask get_schema for their columns): {names}")
    columns = sum(not is_plain(name) for table in shown for name, _ in table.columns)
    if odd := [
        f"{count} {what}" for count, what in ((len(every) - len(shown), "tables"), (columns, "columns")) if count
    ]:
        lines.append(f"Left out, for their names are too long or hold what cannot be seen: {', '.join(odd)}")
    return "\n".join(lines)
