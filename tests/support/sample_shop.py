"""The sample shop built once a test run, copies of it to spoil, and its sales as plain rows to reckon with."""

import sqlite3
import tempfile
from dataclasses import dataclass
from datetime import date, datetime
from functools import cache
from pathlib import Path

from loom_worker.demo import shop

TODAY = date(2026, 2, 11)
"""The shop's last day is the one before."""


@dataclass(frozen=True, slots=True)
class Sale:
    """A line of an order that was not cancelled."""

    line: int
    order: int
    customer: int
    at: datetime
    category: str
    product: str
    revenue: float
    """After the line's discount, unrounded."""

    @property
    def day(self) -> date:
        """The day of the order."""
        return self.at.date()

    @property
    def month(self) -> str:
        """Of the order, as 2025-01."""
        return f"{self.at:%Y-%m}"


@cache
def _whole(today: date = TODAY) -> sqlite3.Connection:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "shop.db"
        shop.build(path, today=today)
        source = sqlite3.connect(path)
        memory = sqlite3.connect(":memory:")
        source.backup(memory)
        source.close()
    return memory


def copy_shop(today: date = TODAY) -> sqlite3.Connection:
    """A shop in memory that is the caller's own; its foreign keys are not enforced, as is SQLite's habit."""
    copy = sqlite3.connect(":memory:")
    _whole(today).backup(copy)
    return copy


@cache
def sales() -> tuple[Sale, ...]:
    """All lines that count as sold, in the order of their ids, read without any grouping or arithmetic in SQL."""
    rows = _whole().execute(
        """SELECT l.id, o.id, o.customer_id, o.ordered_at, g.name, p.name, l.quantity, l.unit_price, l.discount
           FROM order_lines AS l, orders AS o, products AS p, categories AS g
           WHERE o.id = l.order_id AND p.id = l.product_id AND g.id = p.category_id AND o.status <> 'cancelled'
           ORDER BY l.id"""
    )
    return tuple(
        Sale(line, order, customer, datetime.fromisoformat(at), category, product, quantity * price * (1 - discount))
        for line, order, customer, at, category, product, quantity, price, discount in rows
    )


@cache
def orders() -> tuple[tuple[int, int, datetime], ...]:
    """(order, customer, time) of each order that was not cancelled, oldest first."""
    rows = _whole().execute("SELECT id, customer_id, ordered_at FROM orders WHERE status <> 'cancelled' ORDER BY id")
    return tuple((order, customer, datetime.fromisoformat(at)) for order, customer, at in rows)


@cache
def sign_ups() -> dict[int, date]:
    """The day each customer signed up."""
    rows = _whole().execute("SELECT id, signed_up_on FROM customers")
    return {customer: date.fromisoformat(day) for customer, day in rows}
