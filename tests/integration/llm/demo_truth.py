"""What the questions that the demo model answers come to, reckoned in Python from the rows of the tables.

They are made from the English of the questions, their notes, the conventions at the head of demo_questions.yaml and,
where the demo model answers another fair reading, from that one. They owe nothing to its rules, nor to the SQL beside
the questions.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import timedelta
from math import fsum
from operator import attrgetter, itemgetter
from statistics import fmean

from tests.integration.llm.demo_tables import (
    TABLES,
    TODAY,
    Figures,
    Row,
    average_order,
    best_customers,
    category,
    columns,
    day,
    groups,
    kept_orders,
    month,
    product,
    profit,
    ranked,
    refunded,
    revenue,
    rows,
    sold,
    totals,
    units,
    weekday,
    year,
)

KINDS = {int: "INTEGER", float: "REAL", str: "TEXT"}


def where(found: Iterable[Row], is_meant: Callable[[Row], bool]) -> list[Row]:
    return [row for row in found if is_meant(row)]


def days_ago(count: int) -> str:
    return str(TODAY - timedelta(days=count))


def columns_of_orders() -> Figures:
    """Each with the type that its values show."""
    values = [(name, type(value)) for row in rows("orders") for name, value in vars(row).items()]
    return list(dict.fromkeys((name, KINDS[kind]) for name, kind in values if kind in KINDS))


def priced(found: Iterable[Row]) -> Figures:
    """Products with their prices, the cheapest first."""
    return sorted(((each.name, each.list_price) for each in found), key=lambda one: (one[1], one[0]))


def average_prices() -> Figures:
    by_category = groups(rows("products"), attrgetter("category.name"))
    return [(name, fmean(each.list_price for each in group)) for name, group in by_category.items()]


def employees_of_stores() -> Figures:
    counted = Counter(each.store_id for each in rows("employees"))
    return [(store.name, counted[store.id]) for store in rows("stores")]


def sold_in(country: str, since: str, until: str) -> list[Row]:
    """To the customers of a country, from the first day to the last."""
    return where(sold(), lambda line: line.order.customer.country == country and since <= day(line) <= until)


def without_orders(since: str, until: str) -> list[Row]:
    """The customers with no order, not even a cancelled one, from the first day to the day before the last."""
    ordered = {order.customer_id for order in rows("orders") if since <= order.ordered_at < until}
    return [each for each in rows("customers") if each.id not in ordered]


def large_orders_of_last_week() -> Figures:
    monday = TODAY.weekday()
    placed = where(kept_orders(), lambda order: days_ago(monday + 7) <= order.ordered_at < days_ago(monday))
    return [(order.id, order.ordered_at, totals()[order.id]) for order in placed if totals()[order.id] > 1000]


def austrian_invoices() -> int:
    """How many orders of business customers in Austria have a payment by invoice."""
    paid = [each for each in rows("payments") if each.method == "invoice"]
    buyers = [(each.order_id, each.order.customer) for each in paid]
    return len({order for order, buyer in buyers if (buyer.segment, buyer.country) == ("business", "Austria")})


def never_returned() -> Figures:
    returned = {each.order_line.product_id for each in rows("returns")}
    return priced(each for each in rows("products") if each.list_price > 100 and each.id not in returned)


def kitchen_products() -> Figures:
    kitchen = [each for each in rows("products") if each.category.name == "Kitchen"]
    return priced(each for each in kitchen if 20 <= each.list_price <= 40)


def of_november_week() -> list[Row]:
    promoted = [order for order in rows("orders") if order.promotion]
    return [each for each in promoted if each.promotion.name == "November Week" and each.ordered_at[:4] == "2025"]


def damaged_toys() -> list[Row]:
    damaged = [each for each in rows("returns") if each.reason == "damaged" and each.returned_on >= "2026-01-01"]
    return [each for each in damaged if category(each.order_line) == "Toys"]


def unsold_lately() -> Figures:
    recent = {line.product_id for line in sold() if day(line) >= days_ago(14)}
    return [(each.name,) for each in rows("products") if each.id not in recent]


def frequent_buyers() -> Figures:
    placed = Counter(order.customer_id for order in kept_orders())
    return ranked((each for each in rows("customers") if placed[each.id] >= 10), attrgetter("country"), len)


def gift_cards() -> float:
    paid = [each for each in rows("payments") if each.method == "gift_card" and each.paid_at[:7] == "2025-12"]
    return fsum(each.amount for each in paid)


def summer_returns() -> Figures:
    summers = [
        each
        for each in rows("returns")
        if each.returned_on[:4] in {"2025", "2026"} and "06" <= each.returned_on[5:7] <= "08"
    ]
    return ranked(summers, lambda each: each.returned_on[:4], len, units, refunded)


def baskets() -> Figures:
    two = [order for order in kept_orders() if order.customer.segment in {"consumer", "school"}]
    return ranked(two, attrgetter("customer.segment"), len, average_order)


def of_audio_and_lighting(lines: list[Row]) -> list[Row]:
    return where(lines, lambda line: category(line) in {"Audio", "Lighting"})


def desk_lamps_this_year() -> int:
    return units(where(sold(), lambda line: product(line) == "Grovely Desk Lamp" and year(line) == "2026"))


def best_on_mondays() -> Figures:
    return ranked(where(sold(), lambda line: weekday(line.order) == 0), product, units)[:10]


def third_quarters() -> list[Row]:
    return where(sold(), lambda line: year(line) in {"2025", "2026"} and "07" <= day(line)[5:7] <= "09")


TRUTHS: dict[str, Callable[[], Figures]] = {
    "How many customers are there?": lambda: [(len(rows("customers")),)],
    "show me all tables": lambda: [(table,) for table in TABLES],
    "what columns does the orders table have?": columns_of_orders,
    "list all product categories": lambda: columns(rows("categories"), "name"),
    "total revenue": lambda: [(revenue(sold()),)],
    "how many orders do we have": lambda: [(len(rows("orders")),)],
    "cheapest product?": lambda: priced(rows("products"))[:1],
    "What are our 10 most expensive products?": lambda: priced(rows("products"))[-10:],
    "which payment methods do customers use": lambda: ranked(rows("payments"), attrgetter("method"), len),
    "number of customers per country": lambda: ranked(rows("customers"), attrgetter("country"), len),
    "revenue by category": lambda: ranked(sold(), category, revenue),
    "how many employees work in each store?": employees_of_stores,
    "who are our suppliers and where are they from": lambda: columns(rows("suppliers"), "name", "country"),
    "average order value": lambda: [(average_order(kept_orders()),)],
    "when was the very first order?": lambda: [min(columns(rows("orders"), "id", "ordered_at"), key=itemgetter(1))],
    "how many oders were canceled": lambda: [(len(rows("orders")) - len(kept_orders()),)],
    "reasons for returns, most common first": lambda: ranked(rows("returns"), attrgetter("reason"), len),
    "best selling product ever": lambda: ranked(sold(), product, units)[:1],
    "Could you please tell me how much we have refunded to customers in total so far?": lambda: [
        (refunded(rows("returns")),)
    ],
    "stores": lambda: columns(rows("stores"), "name", "city", "country"),
    "top 5 products by profit in Q2 2025 in Germany": lambda: ranked(
        sold_in("Germany", "2025-04-01", "2025-06-30"), product, profit
    )[:5],
    "which customers ordered nothing in 2025?": lambda: columns(
        without_orders("2025-01-01", "2026-01-01"), "name", "signed_up_on"
    ),
    "average order value on weekends": lambda: [
        (average_order(order for order in kept_orders() if weekday(order) >= 5),)
    ],
    "list orders over 1000 from last week": large_orders_of_last_week,
    "revenue last 30 days": lambda: [(revenue(line for line in sold() if day(line) >= days_ago(30)),)],
    "how many new customers signed up in may 2026": lambda: [
        (len(where(rows("customers"), lambda each: each.signed_up_on[:7] == "2026-05")),)
    ],
    "orders from business customers in austria paid by invoice, how many?": lambda: [(austrian_invoices(),)],
    "products over 100 euro that were never returned": never_returned,
    "Audio and Lighting revenue in France for 2025": lambda: ranked(
        of_audio_and_lighting(sold_in("France", "2025-01-01", "2025-12-31")), category, revenue
    ),
    "how many orders used the november week promotion in 2025": lambda: [(len(of_november_week()),)],
    "customers from Munich who signed up before May 2024": lambda: columns(
        where(rows("customers"), lambda each: each.city == "Munich" and each.signed_up_on < "2024-05-01"),
        "name",
        "signed_up_on",
    ),
    "units sold of the Grovely Desk Lamp this year": lambda: [(desk_lamps_this_year(),)],
    "kitchen products with price between 20 and 40": kitchen_products,
    "damaged returns in toys since january": lambda: [(len(damaged_toys()),)],
    "what sells best on mondays": best_on_mondays,
    "revenu by month for 2025": lambda: ranked(where(sold(), lambda line: year(line) == "2025"), month, revenue),
    "which products have not been sold in the last 14 days?": unsold_lately,
    "employees hired after 2023": lambda: columns(
        where(rows("employees"), lambda each: each.hired_on > "2023-12-31"), "name", "hired_on"
    ),
    "Good morning! I would like to know, for each country, how many customers have placed at least ten orders, "
    "not counting the cancelled ones. Thank you very much.": frequent_buyers,
    "gift card payments december 2025, total amount": lambda: [(gift_cards(),)],
    "revenue in March vs February": lambda: ranked(
        where(sold(), lambda line: month(line) in {"2026-02", "2026-03"}), month, revenue
    ),
    "Why did returns rise last summer?": summer_returns,
    "compare the average basket of consumers and schools": baskets,
    "did we sell more in Q3 2026 than in Q3 2025": lambda: ranked(third_quarters(), year, revenue, units),
    "is berlin or hamburg bigger for us by number of orders": lambda: ranked(
        where(rows("orders"), lambda order: order.customer.city in {"Berlin", "Hamburg"}),
        attrgetter("customer.city"),
        len,
    ),
}
"""An answered question of demo_questions.yaml to the true rows, in the columns of the SQL beside it."""

TRUTHS_APART: dict[str, Callable[[], Figures]] = {
    "number of products": lambda: [(len(rows("products")),)],
    "which countries do our customers live in": lambda: [(name,) for name in {c.country for c in rows("customers")}],
    "turnover per year": lambda: ranked(sold(), year, revenue),
    "who is our best customer": lambda: best_customers()[:1],
    "most popular payment method?": lambda: ranked(rows("payments"), attrgetter("method"), len)[:1],
    "avg price per category": average_prices,
    "orders by status": lambda: ranked(rows("orders"), attrgetter("status"), len),
    "revenue in Switzerland in 2025": lambda: [(revenue(sold_in("Switzerland", "2025-01-01", "2025-12-31")),)],
    "customers with no order in the last 6 months, how many?": lambda: [
        (len(without_orders(str(TODAY.replace(month=TODAY.month - 6)), "9999")),)
    ],
    "how many orders did we get yesterday": lambda: [
        (len(where(rows("orders"), lambda order: order.ordered_at[:10] == days_ago(1))),)
    ],
    "sales last quarter by category": lambda: ranked(
        where(sold(), lambda line: "2026-07-01" <= day(line) <= "2026-09-30"), category, revenue
    ),
}
"""The same of demo_questions_apart.yaml."""
