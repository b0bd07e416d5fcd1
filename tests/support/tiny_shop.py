"""A shop of a few rows with the tables of the sample shop, and its three tools over plain sqlite3."""

import json
from typing import Any

from loom_worker.core.sqlite_driver import sqlite3

_TABLES = {
    "customers": "id, name, email, city, country, segment, signed_up_on",
    "categories": "id, name",
    "suppliers": "id, name, country",
    "products": "id, sku, name, category_id, supplier_id, unit_cost, list_price, introduced_on",
    "stores": "id, name, city, country",
    "employees": "id, name, store_id, hired_on",
    "promotions": "id, name, starts_on, ends_on, discount_rate",
    "orders": "id, customer_id, store_id, promotion_id, ordered_at, status, shipping_cost",
    "order_lines": "id, order_id, product_id, quantity, unit_price, discount",
    "payments": "id, order_id, method, amount, paid_at",
    "returns": "id, order_line_id, returned_on, quantity, reason, refund",
}

_ROWS: dict[str, list[tuple[Any, ...]]] = {
    "customers": [
        (1, "Ada Quist", "ada@example.com", "Bern", "Switzerland", "consumer", "2023-12-30"),
        (2, "Bo Lind", "bo@example.com", "Lyon", "France", "business", "2024-02-01"),
        (3, "Cleo Marsh", "cleo@example.com", "Bern", "Switzerland", "consumer", "2025-01-15"),
    ],
    "categories": [(1, "Tents"), (2, "Lamps")],
    "suppliers": [(1, "North Works", "Norway")],
    "products": [
        (1, "T1", "Red Tent", 1, 1, 60.0, 100.0, "2023-01-01"),
        (2, "T2", "Blue Tent", 1, 1, 50.0, 80.0, "2023-01-01"),
        (3, "L1", "Head Lamp", 2, 1, 5.0, 20.0, "2023-01-01"),
        (4, "L2", "Desk Lamp", 2, 1, 9.0, 30.0, "2023-01-01"),
        (5, "L3", "Unsold Lamp", 2, 1, 9.0, 30.0, "2023-01-01"),
    ],
    "stores": [(1, "Online", "Bern", "Switzerland"), (2, "Quay", "Lyon", "France")],
    "employees": [(1, "Dee", 1, "2022-01-01")],
    "promotions": [(1, "Spring", "2025-03-01", "2025-03-31", 0.5)],
    "orders": [
        (1, 1, 1, None, "2024-05-01 10:00:00", "completed", 4.0),
        (2, 1, 1, 1, "2025-03-02 10:00:00", "completed", 4.0),
        (3, 2, 2, None, "2025-07-03 10:00:00", "shipped", 4.0),
        (4, 3, 1, None, "2025-12-31 23:59:59", "completed", 4.0),
        (5, 3, 1, None, "2025-08-01 10:00:00", "cancelled", 4.0),
        (6, 2, 2, None, "2026-02-01 10:00:00", "completed", 4.0),
    ],
    "order_lines": [
        (1, 1, 1, 1, 100.0, 0.0),
        (2, 2, 1, 20, 100.0, 0.5),
        (3, 2, 3, 2, 20.0, 0.0),
        (4, 3, 2, 4, 80.0, 0.0),
        (5, 4, 4, 3, 30.0, 0.0),
        (6, 5, 3, 999, 20.0, 0.0),
        (7, 6, 3, 5, 20.0, 0.0),
    ],
    "payments": [
        (1, 1, "card", 100.0, "2024-05-01"),
        (2, 2, "card", 1040.0, "2025-03-02"),
        (3, 3, "cash", 320.0, "2025-07-03"),
    ],
    "returns": [(1, 4, "2025-07-20", 1, "too small", 80.0), (2, 4, "2025-07-21", 1, "broken", 80.0)],
}


def open_shop() -> sqlite3.Connection:
    """The shop in memory: in 2025 Red Tent 1,000.00, Blue Tent 320.00, Desk Lamp 90.00, Head Lamp 40.00."""
    shop = sqlite3.connect(":memory:")
    for table, columns in _TABLES.items():
        shop.execute(f"CREATE TABLE {table} ({columns})")
        shop.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' for _ in columns.split(','))})", _ROWS[table])
    return shop


def call(shop: sqlite3.Connection, name: str, arguments: dict[str, Any]) -> str:
    """What the tool of that name answers; raises sqlite3.Error as it comes."""
    if name == "list_tables":
        tables = shop.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        return json.dumps({"tables": [{"name": table, "columns": 3} for (table,) in tables]})
    if name == "get_schema":
        return json.dumps({"tables": [{"name": table, "columns": []} for table in arguments["tables"]]})
    cursor = shop.execute(arguments["sql"])
    rows = cursor.fetchall()
    columns = [column[0] for column in cursor.description]
    return json.dumps({"columns": columns, "rows": rows, "row_count": len(rows), "truncated": False})
