"""What a database says of an unknown table or column, in one wording, with the names that were probably meant."""

import difflib
import re
from collections.abc import Iterable

from loom_worker.backends.schema import Table

_UNKNOWN = (
    ("table", r"no such table: (?:main\.)?(?P<name>\S+)"),
    ("column", r"no such column: (?P<name>\S+)"),
    # PostgreSQL 42P01 and 42703
    ("table", r'relation "(?P<name>[^"]+)" does not exist'),
    ("column", r'column "?(?P<name>[^" ]+)"? (?:of relation \S+ )?does not exist'),
    # MySQL and MariaDB 1146 and 1054
    ("table", r"Table '(?:[^'.]+\.)?(?P<name>[^']+)' doesn't exist"),
    ("column", r"Unknown column '(?P<name>[^']+)' in "),
    # DuckDB; what it would propose itself is dropped: it knows no scope
    ("table", r"Catalog Error: Table with name (?P<name>\S+) does not exist"),
    ("column", r'Binder Error: Referenced column "(?P<name>[^"]+)" (?:was )?not found'),
    ("column", r'Binder Error: Table "[^"]+" does not have a column named "(?P<name>[^"]+)"'),
    ("column", r'Binder Error: Values list "[^"]+" does not have a column named "(?P<name>[^"]+)"'),
)


def unknown(message: str) -> str | None:
    """``no such table: x`` or ``no such column: x`` if a database's message says that; None if it says other things."""
    for what, pattern in _UNKNOWN:
        if found := re.match(rf"\(?(?:\d+, ['\"])?{pattern}", message):
            return f"no such {what}: {found['name']}"
    return None


def near(name: str, names: Iterable[str]) -> list[str]:
    """Names from the most to the least similar to ``name``."""
    return sorted(names, key=lambda each: -difflib.SequenceMatcher(None, name.lower(), each.lower()).ratio())


def hint(message: str, sql: str, tables: tuple[Table, ...]) -> str:
    """Add what the model needs to correct an unknown table or column, the likeliest names first."""
    if missing := re.match(r"no such table: (\S+)", message):
        if not tables:
            return f"{message}; there are no tables you may read"
        return f"{message}; tables: " + ", ".join(near(missing[1], (table.path for table in tables)))
    missing = re.match(r"no such column: (?:\S+\.)?(\S+)", message)
    if not missing:
        return message
    used = [table for table in tables if re.search(rf"\b{re.escape(table.name)}\b", sql, re.IGNORECASE)]
    ranked = {table.path: near(missing[1], (name for name, _ in table.columns)) for table in used if table.columns}
    order = near(missing[1], (columns[0] for columns in ranked.values()))
    by_best = sorted(ranked, key=lambda path: order.index(ranked[path][0]))
    return message + "".join(f"; columns of {path}: {', '.join(ranked[path])}" for path in by_best)
