"""A database's tables as the model is told of them, always in the same order."""

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Engine, inspect
from sqlalchemy.engine.interfaces import ReflectedColumn
from sqlalchemy.engine.reflection import ObjectKind
from sqlalchemy.types import NullType

from loom_worker.values.json import Json

MAX_DESCRIPTION_CHARS = 12_000
"""Of the schema text for the system prompt; tables beyond it are only named."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table or view."""

    name: str
    columns: tuple[tuple[str, str], ...]
    """Name and type, in the table's own order."""
    primary_key: tuple[str, ...]
    foreign_keys: tuple[tuple[str, str], ...]
    """Column and what it refers to, such as ``("order_id", "orders.id")``, by column."""

    def as_json(self) -> Json:
        """The table as ``get_schema`` gives it."""
        return {
            "name": self.name,
            "columns": [{"name": name, "type": type_name} for name, type_name in self.columns],
            "primary_key": list(self.primary_key),
            "foreign_keys": [f"{column} -> {target}" for column, target in self.foreign_keys],
        }

    def line(self) -> str:
        """The table in one line: ``orders(id INTEGER PK, store_id INTEGER -> stores.id)``."""
        targets = dict(self.foreign_keys)
        columns = []
        for name, type_name in self.columns:
            key = " PK" if name in self.primary_key else ""
            target = f" -> {targets[name]}" if name in targets else ""
            columns.append(f"{name} {type_name}".rstrip() + key + target)
        return f"{self.name}({', '.join(columns)})"


def read_tables(engine: Engine) -> tuple[Table, ...]:
    """Reflect all tables and views of the default schema, sorted by name.

    Raises:
        SQLAlchemyError: the database does not answer.
    """
    with engine.connect() as connection:
        inspector = inspect(connection)
        columns = inspector.get_multi_columns(kind=ObjectKind.ANY)
        keys = inspector.get_multi_pk_constraint(kind=ObjectKind.ANY)
        references = inspector.get_multi_foreign_keys(kind=ObjectKind.ANY)
    tables = []
    for place, found in columns.items():
        links = [
            (column, f"{link['referred_table']}.{target}")
            for link in references.get(place) or ()
            for column, target in zip(link["constrained_columns"], link["referred_columns"], strict=False)
        ]
        key = keys.get(place)
        primary_key = key["constrained_columns"] if key else []
        typed = tuple((column["name"], _type_name(column, engine)) for column in found)
        tables.append(Table(place[1], typed, tuple(primary_key), tuple(sorted(links))))
    return tuple(sorted(tables, key=lambda table: table.name))


def _type_name(column: ReflectedColumn, engine: Engine) -> str:
    kind = column["type"]
    return "" if isinstance(kind, NullType) else kind.compile(dialect=engine.dialect)


def describe(tables: Iterable[Table], dialect: str) -> str:
    """The schema for the system prompt, a line for each table; the same bytes for the same schema."""
    lines = [f"SQL dialect: {dialect}. Tables (PK: primary key, ->: refers to):"]
    unsaid = []
    room = MAX_DESCRIPTION_CHARS
    for table in tables:
        room -= len(table.line()) + 1
        if room >= 0:
            lines.append(table.line())
        else:
            unsaid.append(table.name)
    if unsaid:
        names = ", ".join(unsaid)[:MAX_DESCRIPTION_CHARS]
        lines.append(f"Further tables (ask get_schema for their columns): {names}")
    return "\n".join(lines)


def near(name: str, names: Iterable[str]) -> list[str]:
    """Names from the most to the least similar to ``name``."""
    return sorted(names, key=lambda each: -difflib.SequenceMatcher(None, name.lower(), each.lower()).ratio())


def hint(message: str, sql: str, tables: tuple[Table, ...]) -> str:
    """Add what the model needs to correct an unknown table or column, the likeliest names first."""
    if missing := re.match(r"no such table: (\S+)", message):
        return f"{message}; tables: " + ", ".join(near(missing[1], (table.name for table in tables)))
    missing = re.match(r"no such column: (?:\S+\.)?(\S+)", message)
    if not missing:
        return message
    used = [table for table in tables if re.search(rf"\b{re.escape(table.name)}\b", sql, re.IGNORECASE)]
    ranked = {table.name: near(missing[1], (name for name, _ in table.columns)) for table in used if table.columns}
    order = near(missing[1], (columns[0] for columns in ranked.values()))
    by_best = sorted(ranked, key=lambda name: order.index(ranked[name][0]))
    return message + "".join(f"; columns of {name}: {', '.join(ranked[name])}" for name in by_best)
