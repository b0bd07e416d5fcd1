"""The sample shop: a SQLite database of sales that the agent can answer questions about from the first minute."""

import contextlib
import os
import re
import tempfile
from datetime import date, timedelta
from importlib.resources import files
from pathlib import Path

from loom_worker.core.sqlite_driver import sqlite3
from loom_worker.demo import shop_catalogue as catalogue
from loom_worker.demo.shop_catalogue import Row
from loom_worker.demo.shop_days import Trade


def ensure(path: Path, *, today: date) -> bool:
    """Build the shop unless its file is there; True if it was built."""
    if path.exists():
        return False
    build(path, today=today)
    return True


def build(path: Path, *, today: date) -> None:
    """Write the shop, from the 1st of January two years before ``today`` to the day before it.

    A date's rows are the same whatever ``today`` is within a year. The file is written under another name and renamed,
    so ``path`` never holds a half-built one, and two processes may build at once.

    Raises:
        OSError: the folder cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with contextlib.closing(sqlite3.connect(name, isolation_level=None)) as connection:
            _write(connection, _rows(today))
        os.fsync(handle)
        Path(name).replace(path)
    finally:
        os.close(handle)
        Path(name).unlink(missing_ok=True)


def statements(kind: str) -> str:
    """The SQL that makes the shop's ``tables`` or its ``indexes``."""
    return files(__package__).joinpath(f"shop_{kind}.sql").read_text(encoding="utf-8")


def tables() -> list[str]:
    """The names of the shop's tables, in an order that satisfies every foreign key."""
    return re.findall(r"^CREATE TABLE (\w+)", statements("tables"), re.MULTILINE)


def _rows(today: date) -> dict[str, list[Row]]:
    first_day = date(today.year - 2, 1, 1)
    words = catalogue.words()
    products = catalogue.products(first_day.year)
    promotions = catalogue.promotions(first_day.year, today)
    trade = Trade(products, promotions, first_day=first_day)
    for number in range((today - first_day).days):
        trade.day(first_day + timedelta(days=number))
    return trade.rows | {
        "categories": [(number, each.name) for number, each in enumerate(words.categories, start=1)],
        "suppliers": [(number, *each) for number, each in enumerate(words.suppliers, start=1)],
        "stores": [(number, *each) for number, each in enumerate(words.stores, start=1)],
        "products": [each.row() for each in products if each.introduced_on < today],
        "promotions": [each.row() for each in promotions],
        "employees": catalogue.employees(first_day.year),
    }


def _write(connection: sqlite3.Connection, rows: dict[str, list[Row]]) -> None:
    # No journal: the file is thrown away unless it becomes whole, and no -journal file is left behind.
    connection.execute("PRAGMA journal_mode=OFF")
    connection.execute("PRAGMA synchronous=OFF")
    connection.execute("PRAGMA foreign_keys=ON")
    connection.executescript(statements("tables"))
    connection.execute("BEGIN")
    for table in tables():
        if rows[table]:
            values = ", ".join("?" * len(rows[table][0]))
            connection.executemany(f"INSERT INTO {table} VALUES ({values})", rows[table])  # our own names
    connection.execute("COMMIT")
    connection.executescript(statements("indexes"))
