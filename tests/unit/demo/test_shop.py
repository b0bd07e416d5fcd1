import contextlib
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

from loom_worker.core.sqlite_driver import sqlite3
from loom_worker.demo import shop_days
from loom_worker.demo.shop_catalogue import words

BEST = """
SELECT p.name FROM order_lines l JOIN orders o ON o.id = l.order_id JOIN products p ON p.id = l.product_id
WHERE strftime('%Y', o.ordered_at) = ? AND o.status <> 'cancelled'
GROUP BY p.id ORDER BY sum(l.quantity * l.unit_price * (1 - l.discount)) DESC LIMIT 10
"""


@pytest.fixture
def connection(shop_path: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(shop_path)) as opened:
        yield opened


@pytest.mark.heavy
def test_nothing_happens_today_or_later(connection: sqlite3.Connection) -> None:
    for column, table in (
        ("ordered_at", "orders"),
        ("paid_at", "payments"),
        ("returned_on", "returns"),
        ("signed_up_on", "customers"),
        ("introduced_on", "products"),
    ):
        assert connection.execute(f"SELECT max(date({column})) FROM {table}").fetchone()[0] <= "2026-11-20"


@pytest.mark.heavy
def test_every_foreign_key_is_declared_and_holds(connection: sqlite3.Connection) -> None:
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    for table, count in {"orders": 3, "order_lines": 2, "products": 2, "payments": 1, "returns": 1}.items():
        assert len(connection.execute(f"PRAGMA foreign_key_list({table})").fetchall()) == count


def test_the_shop_has_the_size_it_promises(connection: sqlite3.Connection) -> None:
    counts = {
        table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        for table in ("products", "customers", "categories", "stores")
    }
    assert counts["products"] == 120
    assert 1300 <= counts["customers"] <= 2000
    assert counts["categories"] == len(words().categories)
    assert counts["stores"] == 8


def test_best_sellers_change_from_year_to_year(connection: sqlite3.Connection) -> None:
    first, second = ([name for (name,) in connection.execute(BEST, (year,))] for year in ("2024", "2025"))
    assert first[0] != second[0]
    assert len(set(first) & set(second)) <= 7


def test_sales_grow_and_peak_before_the_holidays(connection: sqlite3.Connection) -> None:
    months = dict(connection.execute("SELECT substr(ordered_at, 1, 7), count(*) FROM orders GROUP BY 1"))
    years = [sum(count for month, count in months.items() if month.startswith(year)) for year in ("2024", "2025")]
    assert years[0] * 1.1 < years[1] < years[0] * 1.4
    assert months["2025-12"] > 1.5 * months["2025-02"]


def test_a_promotion_brings_orders_and_costs_its_discount(connection: sqlite3.Connection) -> None:
    daily = "SELECT count(*) / 8.0 FROM orders WHERE date(ordered_at) BETWEEN ? AND ?"
    during = connection.execute(daily, ("2025-11-20", "2025-11-27")).fetchone()[0]
    before = connection.execute(daily, ("2025-11-05", "2025-11-12")).fetchone()[0]
    assert during > 1.5 * before
    wrong = """SELECT count(*) FROM order_lines l JOIN orders o ON o.id = l.order_id
               JOIN promotions p ON p.id = o.promotion_id
               WHERE l.discount <> p.discount_rate OR date(o.ordered_at) NOT BETWEEN p.starts_on AND p.ends_on"""
    assert connection.execute(wrong).fetchone() == (0,)


def test_no_product_is_sold_before_it_was_introduced(connection: sqlite3.Connection) -> None:
    early = """SELECT count(*) FROM order_lines l JOIN orders o ON o.id = l.order_id
               JOIN products p ON p.id = l.product_id WHERE date(o.ordered_at) < p.introduced_on"""
    assert connection.execute(early).fetchone() == (0,)


def test_no_customer_orders_before_signing_up(connection: sqlite3.Connection) -> None:
    early = """SELECT count(*) FROM orders o JOIN customers c ON c.id = o.customer_id
               WHERE date(o.ordered_at) < c.signed_up_on"""
    assert connection.execute(early).fetchone() == (0,)


def test_clothing_comes_back_more_often_than_stationery(connection: sqlite3.Connection) -> None:
    rates = dict(
        connection.execute(
            """SELECT c.name, 1.0 * count(r.id) / count(*) FROM order_lines l
               JOIN products p ON p.id = l.product_id JOIN categories c ON c.id = p.category_id
               LEFT JOIN returns r ON r.order_line_id = l.id GROUP BY 1"""
        )
    )
    for category in words().categories:
        assert category.return_rate * 0.6 < rates[category.name] < category.return_rate * 1.3


def test_payments_equal_what_was_ordered(connection: sqlite3.Connection) -> None:
    # Half a cent is rounded one way by SQLite and the other by the shop, on at most five lines.
    wrong = """SELECT count(*) FROM payments p JOIN orders o ON o.id = p.order_id JOIN (
                 SELECT order_id, sum(round(quantity * unit_price * (1 - discount), 2)) AS total
                 FROM order_lines GROUP BY 1) t ON t.order_id = o.id
               WHERE abs(p.amount - t.total - o.shipping_cost) > 0.051 OR o.status = 'cancelled'"""
    assert connection.execute(wrong).fetchone() == (0,)
    unpaid = "SELECT count(*) FROM orders WHERE status <> 'cancelled' AND id NOT IN (SELECT order_id FROM payments)"
    assert connection.execute(unpaid).fetchone() == (0,)


def test_money_has_two_decimals(connection: sqlite3.Connection) -> None:
    for column, table in (("unit_price", "order_lines"), ("amount", "payments"), ("refund", "returns")):
        odd = f"SELECT count(*) FROM {table} WHERE {column} <> round({column}, 2) OR typeof({column}) <> 'real'"
        assert connection.execute(odd).fetchone() == (0,)


def test_mail_goes_to_example_com_alone(connection: sqlite3.Connection) -> None:
    assert connection.execute("SELECT count(*) FROM customers WHERE email NOT LIKE '%@example.com'").fetchone() == (0,)


def test_the_shop_opens_with_the_customers_of_before() -> None:
    trade = shop_days.Trade((), (), first_day=date(2024, 1, 1))
    assert len(trade.rows["customers"]) == shop_days.FIRST_CUSTOMERS
    assert all(str(row[6]) < "2024-01-01" for row in trade.rows["customers"])
