"""The tables of a shop, as questions speak of them: what can be counted, summed, grouped and restricted.

They are the sample shop's; if a database lacks one of the tables, the model says so and runs no query.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

_AMOUNT = "l.quantity * l.unit_price * (1 - l.discount)"
SOLD = "Revenue is quantity × unit price less the line's discount; cancelled orders, shipping and refunds are left out."
ALL_ORDERS = "Cancelled orders are counted too."


@dataclass(frozen=True, slots=True)
class Dimension:
    """What rows can be grouped by or restricted to."""

    column: str
    needs: str = ""
    """The alias of the table it lies in."""
    key: str = ""
    """What to group by in addition to the column: two products may share a name."""


@dataclass(frozen=True, slots=True)
class FactTable:
    """The rows that a question is about."""

    source: str
    measures: Mapping[str, str]
    """Name to SQL; the name is the column's heading."""
    dimensions: Mapping[str, Dimension]
    joins: Mapping[str, str] = field(default_factory=dict)
    """Alias to the JOIN that brings it, in an order in which each finds what it needs."""
    base: str = ""
    """A condition that always holds."""
    day: str = ""
    is_day_plain: bool = True
    """False: a period belongs to these rows only if the question names what happened then."""
    columns: str = ""
    """What a list of the rows shows."""
    order: str = ""
    row: str = ""
    """What makes rows of a list one, where joins may repeat them."""
    note: str = ""
    needs: Mapping[str, str] = field(default_factory=dict)
    """Measure to the alias it needs."""


_PRODUCT = Dimension("p.name", "p", "p.id")
_OF_PRODUCTS = {
    "product": _PRODUCT,
    "category": Dimension("g.name", "g"),
    "supplier": Dimension("u.name", "u", "u.id"),
    "supplier_country": Dimension("u.country", "u"),
}
_OF_CUSTOMERS = {
    "country": Dimension("c.country", "c"),
    "city": Dimension("c.city", "c", "c.country"),
    "segment": Dimension("c.segment", "c"),
    "customer": Dimension("c.name", "c", "c.id"),
}
_STORE = {
    "store": Dimension("s.name", "s", "s.id"),
    "store_city": Dimension("s.city", "s", "s.country"),
    "store_country": Dimension("s.country", "s"),
}
_OWN_STORE = {
    "city": Dimension("s.city", key="s.country"),
    "country": Dimension("s.country"),
    "store": Dimension("s.name", key="s.id"),
}
_PRODUCT_JOINS = {
    "p": "JOIN products AS p ON p.id = l.product_id",
    "g": "JOIN products AS p ON p.id = l.product_id JOIN categories AS g ON g.id = p.category_id",
    "u": "JOIN products AS p ON p.id = l.product_id JOIN suppliers AS u ON u.id = p.supplier_id",
}
_ORDER_JOINS = {
    "c": "JOIN customers AS c ON c.id = o.customer_id",
    "s": "JOIN stores AS s ON s.id = o.store_id",
    "m": "JOIN promotions AS m ON m.id = o.promotion_id",
}
_PROMOTION = {"promotion": Dimension("m.name", "m")}

PER_LINE = frozenset("pgu")
"""Aliases of tables that an order's lines lead to: an order may have lines of several, so it has no one of them."""
FACTS: Mapping[str, FactTable] = {
    "sales": FactTable(
        source="order_lines AS l JOIN orders AS o ON o.id = l.order_id",
        base="o.status <> 'cancelled'",
        day="o.ordered_at",
        measures={
            "revenue": f"ROUND(SUM({_AMOUNT}), 2)",
            "units": "SUM(l.quantity)",
            "orders": "COUNT(DISTINCT o.id)",
            "customers": "COUNT(DISTINCT o.customer_id)",
            "products": "COUNT(DISTINCT l.product_id)",
            "average_order_value": f"ROUND(SUM({_AMOUNT}) / COUNT(DISTINCT o.id), 2)",
            "profit": "ROUND(SUM(l.quantity * (l.unit_price * (1 - l.discount) - p.unit_cost)), 2)",
        },
        needs={"profit": "p"},
        dimensions={**_OF_PRODUCTS, **_OF_CUSTOMERS, **_STORE, **_PROMOTION},
        joins={**_PRODUCT_JOINS, **_ORDER_JOINS},
        note=SOLD,
    ),
    "orders": FactTable(
        source="orders AS o",
        day="o.ordered_at",
        measures={"orders": "COUNT(DISTINCT o.id)"},
        dimensions={
            **_OF_PRODUCTS,
            **_OF_CUSTOMERS,
            **_STORE,
            **_PROMOTION,
            "status": Dimension("o.status"),
            "method": Dimension("y.method", "y"),
        },
        joins={
            "l": "JOIN order_lines AS l ON l.order_id = o.id",
            **{alias: f"JOIN order_lines AS l ON l.order_id = o.id {join}" for alias, join in _PRODUCT_JOINS.items()},
            **_ORDER_JOINS,
            "y": "JOIN payments AS y ON y.order_id = o.id",
        },
        columns='o.id AS "order", o.ordered_at AS ordered_at, o.status AS status, ROUND((SELECT SUM('
        "a.quantity * a.unit_price * (1 - a.discount)) FROM order_lines AS a WHERE a.order_id = o.id), 2) AS total",
        order="o.ordered_at, o.id",
        row="o.id",
        note=ALL_ORDERS,
    ),
    "customers": FactTable(
        source="customers AS c",
        day="c.signed_up_on",
        is_day_plain=False,
        measures={"customers": "COUNT(DISTINCT c.id)"},
        dimensions={name: each for name, each in _OF_CUSTOMERS.items() if name != "customer"},
        columns="c.name AS customer, c.city AS city, c.country AS country, c.segment AS segment, "
        "c.signed_up_on AS signed_up_on",
        order="c.name, c.id",
    ),
    "products": FactTable(
        source="products AS p",
        measures={"products": "COUNT(DISTINCT p.id)", "average_list_price": "ROUND(AVG(p.list_price), 2)"},
        dimensions=_OF_PRODUCTS,
        joins={
            "g": "JOIN categories AS g ON g.id = p.category_id",
            "u": "JOIN suppliers AS u ON u.id = p.supplier_id",
        },
        columns="p.name AS product, p.list_price AS list_price",
        order="p.name, p.id",
        note="Prices are list prices.",
    ),
    "returns": FactTable(
        source="returns AS r JOIN order_lines AS l ON l.id = r.order_line_id JOIN orders AS o ON o.id = l.order_id",
        day="r.returned_on",
        measures={
            "returns": "COUNT(DISTINCT r.id)",
            "units_returned": "SUM(r.quantity)",
            "refunds": "ROUND(SUM(r.refund), 2)",
        },
        dimensions={**_OF_PRODUCTS, **_OF_CUSTOMERS, **_STORE, "reason": Dimension("r.reason")},
        joins={**_PRODUCT_JOINS, **_ORDER_JOINS},
        note="Returns are counted by the day they came back.",
    ),
    "payments": FactTable(
        source="payments AS y JOIN orders AS o ON o.id = y.order_id",
        day="y.paid_at",
        measures={"payments": "COUNT(DISTINCT y.id)", "amount": "ROUND(SUM(y.amount), 2)"},
        dimensions={**_OF_CUSTOMERS, **_STORE, "method": Dimension("y.method")},
        joins=_ORDER_JOINS,
    ),
    "stores": FactTable(
        source="stores AS s",
        measures={"stores": "COUNT(*)"},
        dimensions=_OWN_STORE,
        columns="s.name AS store, s.city AS city, s.country AS country",
        order="s.name",
    ),
    "employees": FactTable(
        source="employees AS e JOIN stores AS s ON s.id = e.store_id",
        day="e.hired_on",
        is_day_plain=False,
        measures={"employees": "COUNT(*)"},
        dimensions=_OWN_STORE,
        columns="e.name AS employee, s.name AS store, e.hired_on AS hired_on",
        order="e.hired_on, e.name",
    ),
    "suppliers": FactTable(
        source="suppliers AS u",
        measures={"suppliers": "COUNT(*)"},
        dimensions={"country": Dimension("u.country")},
        columns="u.name AS supplier, u.country AS country",
        order="u.name",
    ),
    "categories": FactTable(
        source="categories AS g",
        measures={"categories": "COUNT(*)"},
        dimensions={},
        columns="g.name AS category",
        order="g.name",
    ),
    "promotions": FactTable(
        source="promotions AS m",
        measures={"promotions": "COUNT(*)"},
        dimensions={},
        columns="m.name AS promotion, m.starts_on AS starts_on, m.ends_on AS ends_on, m.discount_rate AS discount_rate",
        order="m.starts_on",
    ),
}

TIMES: Mapping[str, str] = {
    "day": "substr({day}, 1, 10)",
    "month": "substr({day}, 1, 7)",
    "quarter": "substr({day}, 1, 4) || '-Q' || ((CAST(substr({day}, 6, 2) AS INTEGER) + 2) / 3)",
    "year": "substr({day}, 1, 4)",
    "weekday": "CASE strftime('%w', {day}) WHEN '1' THEN '1 Monday' WHEN '2' THEN '2 Tuesday' WHEN '3' THEN "
    "'3 Wednesday' WHEN '4' THEN '4 Thursday' WHEN '5' THEN '5 Friday' WHEN '6' THEN '6 Saturday' ELSE '7 Sunday' END",
}
"""What a fact's days can be grouped by; these groups stand in their own order."""

_SPENT = (
    f"c.id IN (SELECT o.customer_id FROM orders AS o JOIN order_lines AS l ON l.order_id = o.id "
    f"WHERE o.status <> 'cancelled'{{period}} GROUP BY o.customer_id HAVING SUM({_AMOUNT}) {{sign}} {{amount}})"
)
_TOTAL = (
    f"o.id IN (SELECT l.order_id FROM order_lines AS l GROUP BY l.order_id HAVING SUM({_AMOUNT}) {{sign}} {{amount}})"
)
_ORDERED = (
    "(SELECT COUNT(*) FROM orders AS o WHERE o.customer_id = c.id{period}) {sign} {amount}",
    "(SELECT COUNT(*) FROM orders AS o WHERE o.customer_id = c.id AND o.status <> 'cancelled'{period}) {sign} {amount}",
)
_SOLD = (
    "SELECT 1 FROM order_lines AS l JOIN orders AS o ON o.id = l.order_id "
    "WHERE l.product_id = p.id AND o.status <> 'cancelled'{period}"
)
_RETURNED = (
    "SELECT 1 FROM order_lines AS l JOIN returns AS r ON r.order_line_id = l.id WHERE l.product_id = p.id{period}"
)


@dataclass(frozen=True, slots=True)
class Rule:
    """A condition of a fact's rows that is no value of a dimension."""

    facts: tuple[str, ...]
    sql: str
    day: str = ""
    """The rule takes the question's period, as days of this column; without it the rows take it."""
    note: str = ""


RULES: Mapping[str, Rule] = {
    "spent": Rule(("customers",), _SPENT, "o.ordered_at", SOLD),
    "ordered": Rule(("customers",), _ORDERED[0], "o.ordered_at", ALL_ORDERS),
    "ordered_kept": Rule(("customers",), _ORDERED[1], "o.ordered_at", "Cancelled orders are not counted."),
    "price": Rule(("products",), "p.list_price {sign} {amount}"),
    "not_sold": Rule(("products",), f"NOT EXISTS ({_SOLD})", "o.ordered_at", "Cancelled orders are no sales."),
    "not_returned": Rule(("products",), f"NOT EXISTS ({_RETURNED})", "r.returned_on"),
    "total": Rule(
        ("orders",), f"o.status <> 'cancelled' AND {_TOTAL}", note="Of an order's lines; cancelled orders are left out."
    ),
    "kept": Rule(("orders", "sales"), "o.status <> 'cancelled'", note="Cancelled orders are not counted."),
    "weekday": Rule(("sales", "orders", "returns", "payments"), "strftime('%w', {own_day}) IN ({amount})"),
}
