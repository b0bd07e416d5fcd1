"""What the sample shop sells, where, and at which promotions; random, but a function of names and years alone.

The words come from ``shop_words.json``: invented names, real places, and how each category sells through the year.
"""

import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache
from importlib.resources import files

Row = tuple[object, ...]
EMPLOYEES_PER_STORE = 5


@dataclass(frozen=True, slots=True)
class Category:
    """What a category holds and how it sells."""

    name: str
    return_rate: float
    """Share of sold lines that come back (0-1)."""
    months: Sequence[float]
    """Demand from January to December, about 1 on average."""
    typical_prices: Mapping[str, int]
    """By the kind of article."""


@dataclass(frozen=True, slots=True)
class Campaign:
    """A promotion that comes back every year."""

    name: str
    starts: Sequence[int]
    """Month and day."""
    days: int
    discount_rate: float
    """0-1, taken off each line of an order that uses it."""
    boost: float
    """Orders a day, as a multiple of a day without promotion."""


@dataclass(frozen=True, slots=True)
class ShopWords:
    """The words that the shop is made of; where they have weights, how often each is drawn."""

    categories: Sequence[Category]
    series: Sequence[str]
    suppliers: Sequence[Sequence[str]]
    """Name and country."""
    stores: Sequence[Sequence[str]]
    """Name, city and country; the first one is online."""
    cities: Mapping[str, Sequence[str]]
    """By country."""
    country_weights: Sequence[int]
    segments: Mapping[str, int]
    payment_methods: Mapping[str, int]
    return_reasons: Mapping[str, int]
    first_names: Sequence[str]
    last_names: Sequence[str]
    campaigns: Sequence[Campaign]


@cache
def words() -> ShopWords:
    """The packaged words, read once."""
    raw = json.loads(files(__package__).joinpath("shop_words.json").read_text(encoding="utf-8"))
    demand = raw.pop("demand_by_month")
    categories = [Category(months=demand[each.pop("demand")], **each) for each in raw.pop("categories")]
    return ShopWords(categories=categories, campaigns=[Campaign(**each) for each in raw.pop("campaigns")], **raw)


@dataclass(frozen=True, slots=True)
class Product:
    """A product and its popularity in each of the three years."""

    id: int
    name: str
    category_id: int
    category: Category
    list_price: float
    introduced_on: date
    popularity: tuple[float, float, float]
    """Relative demand in the first, second and current year: this is what makes the best sellers change."""

    def row(self) -> Row:
        """The product's row; what it cost is drawn for it alone."""
        cost = round(self.list_price * random_of("cost", self.name).uniform(0.42, 0.68), 2)
        sku = f"{self.category.name[:3].upper()}-{1000 + self.id}"
        supplier = random_of("supplier", self.name).randint(1, len(words().suppliers))
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


def random_of(*seed: object) -> random.Random:
    """A generator whose numbers depend on ``seed`` alone: the same in every process and Python release."""
    return random.Random("loom shop " + " ".join(map(str, seed)))  # noqa: S311  # sample data, not secrets


def products(first_year: int) -> tuple[Product, ...]:
    """All products: most are older than ``first_year``, every eighth is introduced in the course of the three years."""
    found: list[Product] = []
    for category_id, category in enumerate(words().categories, start=1):
        for article, typical_price in category.typical_prices.items():
            number = len(found) + 1
            roll = random_of("product", article)
            price = math.floor(typical_price * roll.uniform(0.85, 1.2)) + 0.9
            appeal = roll.lognormvariate(0, 0.5) / math.sqrt(price)
            age_days = roll.randint(60, 800) if number % 8 == 0 else -roll.randint(30, 1500)
            name = f"{roll.choice(words().series)} {article}"
            first, second, third = (appeal * roll.lognormvariate(0, 0.55) for _ in range(3))
            introduced_on = date(first_year, 1, 1) + timedelta(days=age_days)
            product = Product(number, name, category_id, category, price, introduced_on, (first, second, third))
            found.append(product)
    return tuple(found)


def promotions(first_year: int, today: date) -> tuple[Promotion, ...]:
    """Each campaign of each year that has begun before ``today``, in the order of their dates."""
    found: list[Promotion] = []
    for year in range(first_year, today.year + 1):
        for campaign in words().campaigns:
            starts = date(year, *campaign.starts)
            ends = starts + timedelta(days=campaign.days - 1)
            found.append(Promotion(len(found) + 1, campaign, starts, ends))
    return tuple(promotion for promotion in found if promotion.starts_on < today)


def employees(first_year: int) -> list[Row]:
    """Rows of the employees, all hired before the third year."""
    rows: list[Row] = []
    for store_id in range(1, len(words().stores) + 1):
        for seat in range(EMPLOYEES_PER_STORE):
            roll = random_of("employee", store_id, seat)
            hired = date(first_year, 1, 1) + timedelta(days=roll.randint(-2500, 700))
            rows.append((len(rows) + 1, person(roll), store_id, hired.isoformat()))
    return rows


def person(roll: random.Random) -> str:
    """A first name and an invented surname."""
    return f"{roll.choice(words().first_names)} {roll.choice(words().last_names)}"
