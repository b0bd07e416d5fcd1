"""What README and docs ask the demo model is answered with the figures of SQL that was written apart from its rules."""

import re
from pathlib import Path

import pytest

from loom_worker.demo.rows import INTRODUCTION
from tests.integration.llm.demo_tables import figures
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


def ranked(name: str, *, key: str = "1", where: str = "1", figure: str = "SUM(amount)", most: int = -1) -> str:
    return f"SELECT {name}, {figure} FROM sold WHERE {where} GROUP BY {key} ORDER BY 2 DESC, 1 LIMIT {most}"


LAST_YEAR = "ordered_at LIKE '2025%'"
FIGURES = {
    "How many customers are there?": "SELECT '', COUNT(*) FROM customers",
    "Monthly revenue trend this year": (
        "SELECT substr(ordered_at, 1, 7), SUM(amount) FROM sold WHERE ordered_at >= '2026' GROUP BY 1 ORDER BY 1"
    ),
    "Revenue by country since 2024": ranked("country", where="ordered_at >= '2024'"),
    "Top 5 categories by revenue": ranked("category", most=5),
    "Top 7 products by revenue": ranked("product", key="product_id", most=7),
    "What is the return rate by category?": (
        "SELECT category, 100.0 * SUM((SELECT SUM(r.quantity) FROM returns r WHERE r.order_line_id = sold.line_id)) "
        "/ SUM(quantity) FROM sold GROUP BY 1 ORDER BY 2 DESC"
    ),
    "Which three products sold best last year, and how much did each bring in?": ranked(
        "product", key="product_id", where=LAST_YEAR, most=3
    ),
    "Which three products sold best?": ranked("product", key="product_id", figure="SUM(quantity)", most=3),
    "Who are our ten best customers?": ranked("customer", key="customer_id", most=10),
}
"""A question of the pages to the first column of its answer and one figure of each row, in order."""


@pytest.mark.parametrize("question", questions())
def test_a_question_of_the_pages_is_answered_with_the_figures_of_sql_written_apart(question: str) -> None:
    answer = answered(question)
    assert not answer.is_refusal
    told = answer.rows
    true = figures(FIGURES[question])
    assert len(told) == len(true)
    for row, (name, figure) in zip(told, true, strict=True):
        assert row[0] == name or not name
        assert any(not isinstance(each, str) and abs(each - figure) < 0.02 for each in row), (row, figure)


def test_the_pages_ask_what_is_held_here_and_nothing_is_held_that_nobody_asks() -> None:
    assert set(questions()) == set(FIGURES)


def test_the_examples_of_the_demo_models_page_are_all_questions_that_a_test_holds() -> None:
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
    months = "SELECT SUM(amount) FROM sold WHERE ordered_at LIKE '2026-0{}%'"
    (march,), (february,) = figures(months.format(3))[0], figures(months.format(2))[0]
    answer = answered(MARCH)
    assert [row[1] for row in answer.rows] == [pytest.approx(march, abs=0.01), pytest.approx(february, abs=0.01)]
    assert march > february
    assert answer.text.startswith("Sales did not drop but rose: ")


@pytest.mark.parametrize("question", [BERLIN, "Which customers spent more than 500 and live in Berlin?"])
def test_both_conditions_of_a_question_are_in_its_answer(question: str) -> None:
    big = figures("SELECT 1 FROM sold WHERE city = 'Berlin' GROUP BY customer_id HAVING SUM(amount) > 500")
    answer = answered(question)
    assert answer.rows[0][-1] == len(big)
    assert {row[1] for row in answer.rows} == {"Berlin"}
    assert f"{len(big)} in all" in answer.text
