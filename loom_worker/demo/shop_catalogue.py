"""What the sample shop sells, where, and at which promotions; drawn by dice that depend on names and years alone."""

import math
import random
from dataclasses import dataclass
from datetime import date, timedelta

from loom_worker.demo.shop_words import (
    CAMPAIGNS,
    CATEGORIES,
    FIRST_NAMES,
    LAST_NAMES,
    SERIES,
    STORES,
    SUPPLIERS,
    Campaign,
    Category,
)

Row = tuple[object, ...]
EMPLOYEES_PER_STORE = 5


@dataclass(frozen=True, slots=True)
class Product:
    """A product and its luck in each of the three years."""

    id: int
    name: str
    category_id: int
    category: Category
    list_price: float
    introduced_on: date
    popularity: tuple[float, float, float]
    """Relative demand in the first, second and current year: this is what makes the best sellers change."""

    def row(self) -> Row:
        """The product's row; what it cost follows from its own dice."""
        cost = round(self.list_price * dice("cost", self.name).uniform(0.42, 0.68), 2)
        sku = f"{self.category.name[:3].upper()}-{1000 + self.id}"
        supplier = dice("supplier", self.name).randint(1, len(SUPPLIERS))
        introduced = self.introduced_on.isoformat()
        return (self.id, sku, self.name, self.category_id, supplier, cost, self.list_price, introduced)


@dataclass(frozen=True, slots=True)
class Promotion:
    """A campaign of one year."""

    id: int
    campaign: Campaign
    starts_on: date
    ends_on: date

    def row(self) -> Row:
        """The promotion's row."""
        campaign = self.campaign
        return (self.id, campaign.name, self.starts_on.isoformat(), self.ends_on.isoformat(), campaign.discount_rate)


def dice(*seed: object) -> random.Random:
    """A generator whose numbers depend on ``seed`` alone; the same in every process and Python release."""
    return random.Random("loom shop " + " ".join(map(str, seed)))  # noqa: S311  # sample data, not secrets


def products(first_year: int) -> tuple[Product, ...]:
    """All products: most were there before ``first_year``, every eighth comes in the course of the three years."""
    found: list[Product] = []
    for category_id, category in enumerate(CATEGORIES, start=1):
        for goods in category.goods:
            found.append(_product(len(found) + 1, category_id, goods, first_year=first_year))
    return tuple(found)


def _product(number: int, category_id: int, goods: tuple[str, int], *, first_year: int) -> Product:
    noun, typical_price = goods
    roll = dice("product", noun)
    price = math.floor(typical_price * roll.uniform(0.85, 1.2)) + 0.9
    appeal = roll.lognormvariate(0, 0.5) / math.sqrt(price)
    start = date(first_year, 1, 1)
    is_new = number % 8 == 0
    age_days = roll.randint(60, 800) if is_new else -roll.randint(30, 1500)
    return Product(
        id=number,
        name=f"{roll.choice(SERIES)} {noun}",
        category_id=category_id,
        category=CATEGORIES[category_id - 1],
        list_price=price,
        introduced_on=start + timedelta(days=age_days),
        popularity=(appeal * _luck(roll), appeal * _luck(roll), appeal * _luck(roll)),
    )


def _luck(roll: random.Random) -> float:
    return roll.lognormvariate(0, 0.55)


def promotions(first_year: int, today: date) -> tuple[Promotion, ...]:
    """Each campaign of each year that has begun before ``today``, in the order of their dates."""
    found: list[Promotion] = []
    for year in range(first_year, today.year + 1):
        for campaign in CAMPAIGNS:
            starts = date(year, *campaign.starts)
            ends = starts + timedelta(days=campaign.days - 1)
            found.append(Promotion(len(found) + 1, campaign, starts, ends))
    return tuple(promotion for promotion in found if promotion.starts_on < today)


def employees(first_year: int) -> list[Row]:
    """Rows of the staff, all hired before the third year."""
    rows: list[Row] = []
    for store_id in range(1, len(STORES) + 1):
        for seat in range(EMPLOYEES_PER_STORE):
            roll = dice("employee", store_id, seat)
            hired = date(first_year, 1, 1) + timedelta(days=roll.randint(-2500, 700))
            rows.append((len(rows) + 1, person(roll), store_id, hired.isoformat()))
    return rows


def person(roll: random.Random) -> str:
    """A first name and an invented surname."""
    return f"{roll.choice(FIRST_NAMES)} {roll.choice(LAST_NAMES)}"
