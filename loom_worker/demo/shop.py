"""The sample shop: a SQLite database of sales that the agent can answer questions about from the first minute."""

import contextlib
import os
import tempfile
from datetime import date, timedelta
from pathlib import Path

from loom_worker.core.sqlite_driver import sqlite3
from loom_worker.demo import shop_catalogue as catalogue
from loom_worker.demo.shop_catalogue import Row
from loom_worker.demo.shop_days import Trade
from loom_worker.demo.shop_schema import INDEXES, INSERTS, TABLES
from loom_worker.demo.shop_words import CATEGORIES, STORES, SUPPLIERS


def ensure(path: Path, *, today: date) -> bool:
    """Build the shop unless its file is there; True if it was built."""
    if path.exists():
        return False
    build(path, today=today)
    return True


def build(path: Path, *, today: date) -> None:
    """Write the shop, from the 1st of January two years before ``today`` to the day before it.

    A date's rows are the same whatever ``today`` within a year. The file is made beside ``path`` and renamed, so
    that a half-built one never stands there; two processes that build at once do no harm.

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


def _rows(today: date) -> dict[str, list[Row]]:
    first_day = date(today.year - 2, 1, 1)
    products = catalogue.products(first_day.year)
    promotions = catalogue.promotions(first_day.year, today)
    trade = Trade(products, promotions, first_day=first_day)
    for number in range((today - first_day).days):
        trade.day(first_day + timedelta(days=number))
    return trade.rows | {
        "categories": [(number, each.name) for number, each in enumerate(CATEGORIES, start=1)],
        "suppliers": [(number, *each) for number, each in enumerate(SUPPLIERS, start=1)],
        "stores": [(number, *each) for number, each in enumerate(STORES, start=1)],
        "products": [each.row() for each in products if each.introduced_on < today],
        "promotions": [each.row() for each in promotions],
        "employees": catalogue.employees(first_day.year),
    }


def _write(connection: sqlite3.Connection, rows: dict[str, list[Row]]) -> None:
    # No journal: the file is thrown away unless it becomes whole, and no -journal file is left beside it.
    connection.execute("PRAGMA journal_mode=OFF")
    connection.execute("PRAGMA synchronous=OFF")
    connection.execute("PRAGMA foreign_keys=ON")
    connection.executescript(TABLES)
    connection.execute("BEGIN")
    for table, insert in INSERTS.items():
        connection.executemany(insert, rows[table])
    connection.execute("COMMIT")
    connection.executescript(INDEXES)
