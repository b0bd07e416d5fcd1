"""The sample shop's tables as rows that Python joins, and sums over them: SQL only hands over whole tables here."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import date
from functools import cache
from math import fsum
from operator import attrgetter
from statistics import fmean
from types import SimpleNamespace
from typing import Any

from loom_worker.core.sqlite_driver import sqlite3
from tests.support.sample_shop import copy_shop

TODAY = date(2026, 11, 23)
TABLES = (
    "categories",
    "customers",
    "employees",
    "order_lines",
    "orders",
    "payments",
    "products",
    "promotions",
    "returns",
    "stores",
    "suppliers",
)
LINKS = {
    "category_id": "categories",
    "customer_id": "customers",
    "order_id": "orders",
    "order_line_id": "order_lines",
    "product_id": "products",
    "promotion_id": "promotions",
    "store_id": "stores",
    "supplier_id": "suppliers",
}
Row = SimpleNamespace
Rows = Iterable[Row]
Figures = list[tuple[Any, ...]]
category = attrgetter("product.category.name")
product = attrgetter("product.name")


@cache
def shop() -> sqlite3.Connection:
    return copy_shop(TODAY)


@cache
def rows(table: str) -> tuple[Row, ...]:
    """All rows of a table, with those that their keys lead to: `line.product.category.name`."""
    cursor = shop().execute(f"SELECT * FROM {table}")
    names = [column[0] for column in cursor.description]
    found = tuple(Row(**dict(zip(names, values, strict=True))) for values in cursor)
    for key in LINKS.keys() & set(names):
        for row in found:
            setattr(row, key.removesuffix("_id"), by_id(LINKS[key]).get(getattr(row, key)))
    return found


@cache
def by_id(table: str) -> dict[int, Row]:
    return {row.id: row for row in rows(table)}


@cache
def sold() -> tuple[Row, ...]:
    """The lines of the orders that were not cancelled."""
    return tuple(line for line in rows("order_lines") if line.order.status != "cancelled")


def kept_orders() -> list[Row]:
    """Those that were not cancelled."""
    return [order for order in rows("orders") if order.status != "cancelled"]


@cache
def totals() -> dict[int, float]:
    """What each order comes to, without shipping."""
    return {order: revenue(lines) for order, lines in groups(rows("order_lines"), attrgetter("order_id")).items()}


def day(line: Row) -> str:
    """When it was ordered, as 2025-01-31."""
    return str(line.order.ordered_at)[:10]


def month(line: Row) -> str:
    return day(line)[:7]


def year(line: Row) -> str:
    return day(line)[:4]


def weekday(order: Row) -> int:
    """0 is Monday."""
    return date.fromisoformat(order.ordered_at[:10]).weekday()


def revenue(lines: Rows) -> float:
    return fsum(line.quantity * line.unit_price * (1 - line.discount) for line in lines)


def profit(lines: Rows) -> float:
    return fsum(line.quantity * (line.unit_price * (1 - line.discount) - line.product.unit_cost) for line in lines)


def units(found: Rows) -> int:
    return sum(row.quantity for row in found)


def refunded(returns: Rows) -> float:
    return fsum(each.refund for each in returns)


def average_order(orders: Rows) -> float:
    return fmean(totals()[order.id] for order in orders)


def groups(found: Rows, key: Callable[[Row], Any]) -> dict[Any, list[Row]]:
    sorted_out: dict[Any, list[Row]] = defaultdict(list)
    for row in found:
        sorted_out[key(row)].append(row)
    return sorted_out


def ranked(found: Rows, key: Callable[[Row], Any], *figures: Callable[[list[Row]], float]) -> Figures:
    """Each key with the figures of its rows, the largest first figure first."""
    told = [(name, *(figure(group) for figure in figures)) for name, group in groups(found, key).items()]
    return sorted(told, key=lambda one: (-one[1], one[0]))


def columns(found: Rows, *names: str) -> Figures:
    return [tuple(getattr(row, name) for name in names) for row in found]


def best_customers() -> Figures:
    """Each customer's name and revenue, told apart by id, as names are not unique."""
    return [
        (by_id("customers")[key].name, total) for key, total in ranked(sold(), attrgetter("order.customer_id"), revenue)
    ]
