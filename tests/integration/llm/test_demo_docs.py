"""What README and docs ask the demo model is answered with figures that are reckoned in Python, row by row."""

import re
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path

import pytest

from loom_worker.demo.rows import INTRODUCTION
from tests.integration.llm.demo_tables import (
    Figures,
    Row,
    best_customers,
    category,
    day,
    groups,
    month,
    product,
    ranked,
    revenue,
    rows,
    sold,
    units,
    year,
)
from tests.integration.llm.test_demo_questions import QUESTIONS, REFUSED, answered

pytestmark = pytest.mark.heavy

ROOT = Path(__file__).parents[3]
_ASKED = re.compile(r'\\?"input\\?": \\?"([^"\\]+)\\?"(?!, "said_at")|loom ask "([^"]+)"')

MARCH = "Why did sales drop in March?"
BERLIN = "customers who spent more than 500 and live in Berlin"


def questions() -> list[str]:
    """Those of the pages, a shell variable filled in, and those that the model itself offers."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    found = [match for page in pages for match in _ASKED.findall(page.read_text("utf-8"))]
    offered = re.findall(r"^- (.+)$", INTRODUCTION, re.MULTILINE)
    return sorted({(first or second).replace("$n", "7") for first, second in found} | set(offered))


def revenue_since(first: str, key: Callable[[Row], str]) -> Figures:
    return ranked((line for line in sold() if day(line) >= first), key, revenue)


def revenue_of_month(name: str) -> float:
    return revenue(line for line in sold() if month(line) == name)


def return_rates() -> Figures:
    """Of each category, units returned for a hundred sold."""
    kept = [each for each in rows("returns") if each.order_line.order.status != "cancelled"]
    back = groups(kept, lambda each: category(each.order_line))
    return ranked(sold(), category, lambda lines: round(100 * units(back[category(lines[0])]) / units(lines), 2))


def last_year(count: int) -> Figures:
    return ranked((line for line in sold() if year(line) == "2025"), product, revenue)[:count]


FIGURES: dict[str, Callable[[], Figures]] = {
    "How many customers are there?": lambda: [("", len(rows("customers")))],
    "Monthly revenue trend this year": lambda: sorted(revenue_since("2026-01-01", month)),
    "Revenue by country since 2024": lambda: revenue_since("2024-01-01", attrgetter("order.customer.country")),
    "Top 5 categories by revenue": lambda: ranked(sold(), category, revenue)[:5],
    "Top 7 products by revenue": lambda: ranked(sold(), product, revenue)[:7],
    "What is the return rate by category?": return_rates,
    "Which three products sold best last year, and how much did each bring in?": lambda: last_year(3),
    "Which three products sold best?": lambda: ranked(sold(), product, units)[:3],
    "Who are our ten best customers?": lambda: best_customers()[:10],
}
"""A question of the pages to the first column of its answer and one figure of each row, in order."""


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
    table = page.partition("| subject | examples |")[2].partition("\n\n")[0]
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
    march, february = revenue_of_month("2026-03"), revenue_of_month("2026-02")
    answer = answered(MARCH)
    assert [row[1] for row in answer.rows] == [pytest.approx(march, abs=0.01), pytest.approx(february, abs=0.01)]
    assert march > february
    assert answer.text.startswith("Sales did not drop but rose: ")


@pytest.mark.parametrize("question", [BERLIN, "Which customers spent more than 500 and live in Berlin?"])
def test_both_conditions_of_a_question_are_in_its_answer(question: str) -> None:
    of_berlin = (line for line in sold() if line.order.customer.city == "Berlin")
    big = [total for _, total in ranked(of_berlin, attrgetter("order.customer_id"), revenue) if total > 500]
    answer = answered(question)
    assert answer.rows[0][-1] == len(big)
    assert {row[1] for row in answer.rows} == {"Berlin"}
    assert f"{len(big)} in all" in answer.text
