"""The sample shop's trade, day by day: a day's rows depend on its date and on the days before it, never on today."""

import bisect
import itertools
import random
from collections import defaultdict
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta

from loom_worker.demo.shop_catalogue import Product, Promotion, Row, person, random_of, words

FIRST_CUSTOMERS = 500
"""Signed up before the first day; one or two a day follow."""
ORDERS_A_DAY = 13.0
"""On average in the first year, before season and promotions."""
GROWTH_A_YEAR = 0.22
PRICE_RISE_A_YEAR = 0.03
FREE_SHIPPING_FROM = 80.0
SHIPPING_COST = 4.9
_WEEKDAYS = (0.92, 0.9, 0.94, 1.0, 1.12, 1.18, 0.94)
_MONTHS = (0.92, 0.9, 0.98, 1.0, 1.0, 0.98, 0.94, 0.97, 1.0, 1.02, 1.12, 1.25)
_HOURS = range(8, 23)
_HOUR_WEIGHTS = (2, 3, 5, 6, 7, 6, 5, 5, 6, 7, 8, 9, 8, 5, 3)


class Trade:
    """Collects rows of customers, orders, lines, payments and returns, day by day."""

    def __init__(self, products: tuple[Product, ...], promotions: tuple[Promotion, ...], *, first_day: date) -> None:
        self.rows: dict[str, list[Row]] = {
            name: [] for name in ("customers", "orders", "order_lines", "payments", "returns")
        }
        self._products = products
        self._promotions = promotions
        self._first_day = first_day
        self._words = words()
        self._returns_due: defaultdict[date, list[Row]] = defaultdict(list)
        self._customers: list[tuple[str, str]] = []
        for number in range(FIRST_CUSTOMERS):
            roll = random_of("first customer", number)
            self._sign_up(roll, first_day - timedelta(days=1 + (FIRST_CUSTOMERS - number) * 2))

    def day(self, day: date) -> None:
        """Add one day; days must come in order, each once."""
        roll = random_of("day", day.isoformat())
        for _ in range(roll.choices((0, 1, 2, 3), (30, 35, 22, 13))[0]):
            self._sign_up(roll, day)
        promotion = next((each for each in self._promotions if each.starts_on <= day <= each.ends_on), None)
        year, month = day.year - self._first_day.year, day.month - 1
        demand = (
            product.popularity[year] * product.category.months[month] if day >= product.introduced_on else 0.0
            for product in self._products
        )
        weights = list(itertools.accumulate(demand))
        for moment in self._moments(roll, day, promotion):
            self._order(roll, moment, promotion=promotion, weights=weights)
        for row in self._returns_due.pop(day, ()):
            self._add("returns", row)

    def _add(self, table: str, row: Row) -> int:
        rows = self.rows[table]
        rows.append((len(rows) + 1, *row))
        return len(rows)

    def _sign_up(self, roll: random.Random, day: date) -> None:
        name = person(roll)
        country, cities = roll.choices(list(self._words.cities.items()), self._words.country_weights)[0]
        segment = _drawn(roll, self._words.segments)
        email = f"{name.lower().replace(' ', '.')}.{len(self._customers) + 1}@example.com"
        self._customers.append((country, segment))
        self._add("customers", (name, email, roll.choice(cities), country, segment, day.isoformat()))

    def _moments(self, roll: random.Random, day: date, promotion: Promotion | None) -> list[datetime]:
        years = (day - self._first_day).days / 365.25
        mean = ORDERS_A_DAY * (1 + GROWTH_A_YEAR * years) * _WEEKDAYS[day.weekday()] * _MONTHS[day.month - 1]
        mean *= promotion.campaign.boost if promotion else 1.0
        count = max(3, round(roll.gauss(mean, mean**0.5)))
        hours = roll.choices(_HOURS, _HOUR_WEIGHTS, k=count)
        return sorted(datetime.combine(day, time(hour, roll.randrange(60), roll.randrange(60))) for hour in hours)

    def _order(
        self, roll: random.Random, moment: datetime, *, promotion: Promotion | None, weights: list[float]
    ) -> None:
        customer = int(len(self._customers) * roll.random() ** 1.35)
        country, segment = self._customers[customer]
        # Six orders in ten are placed online (1), and all of those who have no store in their country.
        near = [number for number, store in enumerate(self._words.stores[1:], start=2) if store[2] == country]
        store = roll.choice(near) if near and roll.random() > 0.6 else 1
        used = promotion if promotion and roll.random() < 0.7 else None
        status = roll.choices(("completed", "shipped", "cancelled"), (90, 6, 4))[0]
        lines = [self._line(roll, moment.date(), product, segment, used) for product in self._basket(roll, weights)]
        total = sum(_amount(line) for line in lines)
        shipping = SHIPPING_COST if store == 1 and total < FREE_SHIPPING_FROM else 0.0
        ordered_at = moment.isoformat(sep=" ")
        order = self._add("orders", (customer + 1, store, used.id if used else None, ordered_at, status, shipping))
        for line in lines:
            self._sell(roll, moment.date(), order, line, is_kept=status != "cancelled")
        if status != "cancelled":
            paid_at = (moment + timedelta(seconds=roll.randrange(20, 400))).isoformat(sep=" ")
            method = _drawn(roll, self._words.payment_methods)
            self._add("payments", (order, method, round(total + shipping, 2), paid_at))

    def _basket(self, roll: random.Random, weights: list[float]) -> list[Product]:
        size = roll.choices((1, 2, 3, 4, 5), (34, 30, 20, 10, 6))[0]
        picks = {bisect.bisect_right(weights, roll.random() * weights[-1]): None for _ in range(size)}
        return [self._products[min(pick, len(self._products) - 1)] for pick in picks]

    def _line(
        self, roll: random.Random, day: date, product: Product, segment: str, used: Promotion | None
    ) -> tuple[Product, int, float, float]:
        quantity = roll.choices((1, 2, 3), (76, 18, 6))[0] if segment == "consumer" else roll.randint(1, 8)
        years_back = 2 - (day.year - self._first_day.year)
        price = round(product.list_price * (1 - PRICE_RISE_A_YEAR * years_back), 2)
        volume_discount = 0.05 if quantity >= 5 else 0.0
        return product, quantity, price, used.campaign.discount_rate if used else volume_discount

    def _sell(
        self, roll: random.Random, day: date, order: int, line: tuple[Product, int, float, float], *, is_kept: bool
    ) -> None:
        product, quantity, price, discount = line
        number = self._add("order_lines", (order, product.id, quantity, price, discount))
        if is_kept and roll.random() < product.category.return_rate:
            back = roll.randint(1, quantity)
            returned_on = day + timedelta(days=roll.randint(3, 28))
            refund = round(_amount(line) * back / quantity, 2)
            reason = _drawn(roll, self._words.return_reasons)
            self._returns_due[returned_on].append((number, returned_on.isoformat(), back, reason, refund))


def _amount(line: tuple[Product, int, float, float]) -> float:
    _, quantity, price, discount = line
    return round(quantity * price * (1 - discount), 2)


def _drawn(roll: random.Random, weights: Mapping[str, int]) -> str:
    return roll.choices(list(weights), list(weights.values()))[0]
