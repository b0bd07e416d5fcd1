"""A hundred questions of newcomers: most are answered with just the true rows, and no answer gives others."""

from collections import Counter
from typing import Any

import pytest

from tests.integration.llm.demo_tables import NEWCOMERS, figures
from tests.integration.llm.test_demo_questions import answered, is_true
from tests.support.demo_model import Answered

pytestmark = [pytest.mark.heavy, pytest.mark.takes(15)]


def rounded(answer: Answered, row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A true row with as many decimals as a share of the answer has."""
    is_share = any(name.endswith("percent") for name in answer.columns)
    return tuple(round(each, 1) if is_share and isinstance(each, float) and abs(each) <= 100 else each for each in row)


def verdict(one: dict[str, Any]) -> str:
    """Whether a question is answered ``right``, ``refused``, or ``false``."""
    answer = answered(one["q"])
    if one["sql"] == "examples":
        return "right" if not answer.rows and answer.text.count("\n- ") >= 3 else "false"
    if answer.is_refusal:
        return "refused" if one["sql"] else "right"
    readings = [figures(sql) for sql in (one["sql"], one.get("also")) if sql]
    in_all = answer.rows[0][-1] if answer.rows and answer.columns[-1] == "rows_in_all" else None
    close = [[rounded(answer, row) for row in rows] for rows in readings]
    is_right = [(in_all,)] in readings or any(is_true(answer, rows) for rows in readings + close)
    return "right" if is_right else "false"


LOWEST = "SELECT {0}, SUM(amount) FROM sold {1} GROUP BY {2} ORDER BY 2 LIMIT {3}"


@pytest.mark.cases(
    ("question", "of"),
    [
        ("Who are our ten worst customers?", ("customer", "", "customer_id", 10)),
        ("Who are our ten smallest customers by revenue?", ("customer", "", "customer_id", 10)),
        ("Which five countries had the lowest revenue in 2025?", ("country", "WHERE ordered_at LIKE '2025%'", "1", 5)),
        ("Show the 5 worst countries by revenue", ("country", "", "1", 5)),
    ],
)
def test_the_low_end_of_a_ranking_is_not_answered_by_a_pattern_for_the_high_end(
    question: str, of: tuple[object, ...]
) -> None:
    assert verdict({"q": question, "sql": LOWEST.format(*of)}) != "false"


@pytest.mark.parametrize(("is_apart", "least"), [(False, 56), (True, 35)])
def test_most_questions_of_newcomers_are_answered_and_none_is_answered_falsely(is_apart: bool, least: int) -> None:
    told = {one["q"]: verdict(one) for one in NEWCOMERS["questions"] if one.get("apart", False) is is_apart}
    assert [question for question, how in told.items() if how == "false"] == []
    assert Counter(told.values())["right"] >= least
    assert len(NEWCOMERS["questions"]) == 100
