"""The tables of a DuckDB file, from its own catalogue: what SQLAlchemy asks PostgreSQL, DuckDB does not answer."""

from collections.abc import Iterable, Sequence
from itertools import groupby

from sqlalchemy import Engine

from loom_worker.backends.schema import Table

DEFAULT_SCHEMA = "main"

_COLUMNS = """
    SELECT schema_name, table_name, column_name, data_type FROM duckdb_columns()
    WHERE database_name = current_database() AND NOT internal ORDER BY schema_name, table_name, column_index
"""
_KEYS = """
    SELECT schema_name, table_name, constraint_type, constraint_column_names,
           referenced_table, referenced_column_names
    FROM duckdb_constraints()
    WHERE database_name = current_database() AND constraint_type IN ('PRIMARY KEY', 'FOREIGN KEY')
"""


def read_duckdb(engine: Engine) -> tuple[Table, ...]:
    """All tables and views of all schemas, those of ``main`` first, each sorted by name.

    Raises:
        SQLAlchemyError: the file cannot be read.
    """
    with engine.connect() as connection:
        columns = connection.exec_driver_sql(_COLUMNS).fetchall()
        keys = connection.exec_driver_sql(_KEYS).fetchall()
    tables = [_table(place, rows, keys) for place, rows in groupby(columns, key=lambda row: (row[0], row[1]))]
    return tuple(sorted(tables, key=lambda table: (not table.is_default, table.schema, table.name)))


def _table(place: tuple[str, str], columns: Iterable[Sequence[str]], keys: Sequence[Sequence[object]]) -> Table:
    schema, name = place
    typed = tuple((column, type_name) for _, _, column, type_name in columns)
    primary: tuple[str, ...] = ()
    links: list[tuple[str, str]] = []
    for at, table, kind, names, target, target_names in keys:
        if (at, table) != place or not isinstance(names, list):
            continue
        if kind == "PRIMARY KEY":
            primary = tuple(names)
        elif isinstance(target_names, list):
            # DuckDB has no foreign keys into other schemas.
            path = str(target) if schema == DEFAULT_SCHEMA else f"{schema}.{target}"
            links += [(column, f"{path}.{other}") for column, other in zip(names, target_names, strict=True)]
    return Table(name, typed, primary, tuple(sorted(links)), schema, schema == DEFAULT_SCHEMA)
