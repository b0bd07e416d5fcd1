"""What README and docs ask the demo model is answered with figures that are reckoned in Python, row by row."""

import re
from collections import defaultdict
from collections.abc import Callable
from datetime import date
from functools import cache
from pathlib import Path

import pytest

from loom_worker.llm.demo import INTRODUCTION
from loom_worker.sqlite_driver import sqlite3
from tests.integration.llm.test_demo_questions import QUESTIONS, REFUSED
from tests.support.demo_model import Answered, ask
from tests.support.sample_shop import copy_shop

ROOT = Path(__file__).parents[3]
TODAY = date(2026, 11, 23)
_ASKED = re.compile(r'\\?"input\\?": \\?"([^"\\]+)\\?"|loom ask "([^"]+)"')

MARCH = "Why did sales drop in March?"
BERLIN = "customers who spent more than 500 and live in Berlin"
Rows = list[tuple[str, float]]


def questions() -> list[str]:
    """Those of the pages, a shell variable filled in, and those that the model itself offers."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    found = [match for page in pages for match in _ASKED.findall(page.read_text("utf-8"))]
    offered = re.findall(r"^- (.+)$", INTRODUCTION, re.MULTILINE)
    return sorted({(first or second).replace("$n", "7") for first, second in found} | set(offered))


@cache
def shop() -> sqlite3.Connection:
    return copy_shop(TODAY)


@cache
def lines() -> list[dict[str, str]]:
    """The lines of orders that were not cancelled, with what their keys lead to; joined in Python."""
    tables = {
        name: {row["id"]: row for row in rows(name)} for name in ("orders", "products", "categories", "customers")
    }
    sold = []
    for line in rows("order_lines"):
        order, product = tables["orders"][line["order_id"]], tables["products"][line["product_id"]]
        if order["status"] != "cancelled":
            category = tables["categories"][product["category_id"]]["name"]
            customer = tables["customers"][order["customer_id"]]
            sold.append(
                line
                | {
                    "day": str(order["ordered_at"])[:10],
                    "product": product["name"],
                    "category": category,
                    "customer": f"{customer['id']}",
                    "name": customer["name"],
                    "country": customer["country"],
                }
            )
    return sold


def rows(table: str) -> list[dict[str, str]]:
    cursor = shop().execute(f"SELECT * FROM {table}")
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]


def revenue_by(key: str, *, since: str = "", until: str = "9999") -> Rows:
    totals: dict[str, float] = defaultdict(float)
    for line in lines():
        if since <= line["day"] < until:
            price = float(line["unit_price"]) * (1 - float(line["discount"]))
            totals[line["day"][:7] if key == "month" else line[key]] += int(line["quantity"]) * price
    return sorted(totals.items(), key=lambda one: -one[1])


def best_customers() -> Rows:
    names = {line["customer"]: line["name"] for line in lines()}
    return [(names[key], total) for key, total in revenue_by("customer")[:10]]


def return_rates() -> Rows:
    of_line = {line["id"]: line for line in lines()}
    sold: dict[str, int] = defaultdict(int)
    back: dict[str, int] = defaultdict(int)
    for line in lines():
        sold[line["category"]] += int(line["quantity"])
    for one in rows("returns"):
        if one["order_line_id"] in of_line:
            back[of_line[one["order_line_id"]]["category"]] += int(one["quantity"])
    return sorted(((name, round(100 * back[name] / sold[name], 1)) for name in sold), key=lambda one: -one[1])


def units_by_product() -> Rows:
    totals: dict[str, float] = defaultdict(float)
    for line in lines():
        totals[line["product"]] += int(line["quantity"])
    return sorted(totals.items(), key=lambda one: -one[1])


def last_year(count: int) -> Rows:
    return revenue_by("product", since="2025", until="2026")[:count]


FIGURES: dict[str, Callable[[], Rows]] = {
    "How many customers are there?": lambda: [("", float(len(rows("customers"))))],
    "Monthly revenue trend this year": lambda: sorted(revenue_by("month", since="2026-01-01")),
    "Revenue by country since 2024": lambda: revenue_by("country", since="2024-01-01"),
    "Top 5 categories by revenue": lambda: revenue_by("category")[:5],
    "Top 7 products by revenue": lambda: revenue_by("product")[:7],
    "What is the return rate by category?": return_rates,
    "Which three products sold best last year, and how much did each bring in?": lambda: last_year(3),
    "Which three products sold best?": lambda: units_by_product()[:3],
    "Who are our ten best customers?": best_customers,
}
"""A question of the pages to the first column of its answer and one figure of each row, in order."""


@cache
def answered(question: str) -> Answered:
    return ask(question, shop(), TODAY)


@pytest.mark.parametrize("question", questions())
def test_a_question_of_the_pages_is_answered_with_figures_that_python_reckons_too(question: str) -> None:
    answer = answered(question)
    assert not answer.is_refusal
    told = answer.rows
    true = FIGURES[question]()
    assert len(told) == len(true)
    for row, (name, figure) in zip(told, true, strict=True):
        assert row[0] == name or not name
        assert any(not isinstance(each, str) and abs(each - figure) < 0.02 for each in row), (row, figure)


def test_the_pages_ask_what_is_reckoned_here_and_nothing_is_reckoned_that_nobody_asks() -> None:
    assert set(questions()) == set(FIGURES)


def test_the_examples_of_the_demo_models_page_are_all_questions_that_a_test_reckons() -> None:
    page = (ROOT / "docs" / "demo-model.md").read_text("utf-8")
    table = page.partition("| about | for instance |")[2].partition("\n\n")[0]
    examples = {one.strip() for row in table.splitlines()[2:] for one in row.split("|")[2].split("·")}
    assert len(examples) > 15
    asked = {str(one["question"]) for number, one in QUESTIONS.items() if number not in REFUSED}
    assert examples <= asked | set(FIGURES) | {MARCH, BERLIN}


@pytest.mark.parametrize("page", ["README.md", "docs/first-minute.md"])
def test_the_figures_that_a_page_shows_are_those_of_the_answer(page: str) -> None:
    shown = re.findall(r"^\d\. .+: revenue .+$", (ROOT / page).read_text("utf-8"), re.MULTILINE)
    question = "Which three products sold best last year, and how much did each bring in?"
    assert len(shown) == 3
    assert shown == [line for line in answered(question).text.splitlines() if line[:1].isdigit()]


def test_why_sales_dropped_in_march_is_told_with_march_and_february_and_no_drop_is_made_up() -> None:
    march = sum(total for _, total in revenue_by("category", since="2026-03-01", until="2026-04-01"))
    february = sum(total for _, total in revenue_by("category", since="2026-02-01", until="2026-03-01"))
    answer = ask(MARCH, shop(), TODAY)
    assert [row[1] for row in answer.rows] == [pytest.approx(march, abs=0.01), pytest.approx(february, abs=0.01)]
    assert march > february
    assert answer.text.startswith("Sales did not drop but rose: ")


@pytest.mark.parametrize("question", [BERLIN, "Which customers spent more than 500 and live in Berlin?"])
def test_both_conditions_of_a_question_are_in_its_answer(question: str) -> None:
    of_berlin = {customer["id"] for customer in rows("customers") if customer["city"] == "Berlin"}
    big = [key for key, total in revenue_by("customer") if total > 500 and int(key) in of_berlin]
    answer = ask(question, shop(), TODAY)
    assert answer.rows[0][-1] == len(big)
    assert {row[1] for row in answer.rows} == {"Berlin"}
    assert f"{len(big)} in all" in answer.text
