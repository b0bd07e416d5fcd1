import re
from datetime import date

import pytest

from loom_worker.demo.slots import read

TODAY = date(2026, 11, 21)

PERIODS = {
    "best products last year": ("2025-01-01", "2026-01-01", "last year"),
    "this year": ("2026-01-01", "2026-11-22", "this year"),
    "in 2025": ("2025-01-01", "2026-01-01", "2025"),
    "Last month, please": ("2026-10-01", "2026-11-01", "last month"),
    "this month": ("2026-11-01", "2026-11-22", "this month"),
    "last quarter": ("2026-07-01", "2026-10-01", "last quarter"),
    "this quarter": ("2026-10-01", "2026-11-22", "this quarter"),
    "last week": ("2026-11-09", "2026-11-16", "last week"),
    "in March 2025": ("2025-03-01", "2025-04-01", "march 2025"),
    "in December 2025": ("2025-12-01", "2026-01-01", "december 2025"),
    "in March": ("2026-03-01", "2026-04-01", "march"),
    "in December": ("2025-12-01", "2026-01-01", "december"),
    "in November": ("2026-11-01", "2026-11-22", "november"),
    "March last year": ("2025-03-01", "2025-04-01", "march last year"),
    "before May 2024": ("0001-01-01", "2024-05-01", "before may 2024"),
    "after 2023": ("2024-01-01", "2026-11-22", "after 2023"),
    "until March 2025": ("0001-01-01", "2025-04-01", "until march 2025"),
    "last summer": ("2026-06-01", "2026-09-01", "last summer"),
    "on 5 March 2025": ("2025-03-05", "2025-03-06", "5 march 2025"),
    "the first half of 2025": ("2025-01-01", "2025-07-01", "the first half of 2025"),
    "from 2024 to 2025": ("2024-01-01", "2026-01-01", "from 2024 to 2025"),
    "the second half of 2026": ("2026-07-01", "2026-11-22", "the second half of 2026"),
    "year to date": ("2026-01-01", "2026-11-22", "year to date"),
    "in 2026": ("2026-01-01", "2026-11-22", "2026"),
    "in 2031": ("2031-01-01", "2032-01-01", "2031"),
    "from March to May 2025": ("2025-03-01", "2025-06-01", "from march to may 2025"),
    "Q3 2025": ("2025-07-01", "2025-10-01", "q3 2025"),
    "q4": ("2026-10-01", "2026-11-22", "q4"),
    "2025-03": ("2025-03-01", "2025-04-01", "2025-03"),
    "on 2025-03-31": ("2025-03-31", "2025-04-01", "2025-03-31"),
    "since 2024": ("2024-01-01", "2026-11-22", "since 2024"),
    "since March 2025": ("2025-03-01", "2026-11-22", "since march 2025"),
    "since March": ("2026-03-01", "2026-11-22", "since march"),
    "the last 30 days": ("2026-10-22", "2026-11-22", "last 30 days"),
    "past twelve months": ("2025-11-21", "2026-11-22", "past twelve months"),
    "yesterday": ("2026-11-20", "2026-11-21", "yesterday"),
}


@pytest.mark.cases("question", PERIODS)
def test_a_period_is_the_days_it_says(question: str) -> None:
    period = read(question, TODAY).period
    assert period is not None
    assert (period.start.isoformat(), period.end.isoformat(), period.wording) == PERIODS[question]


@pytest.mark.cases(
    "question",
    [
        "best products",
        "which may sell",
        "in 1850",
        "order 20255",
        "every year",
        "2-3",
        "spent over 2000",
        "november week",
    ],
)
def test_what_is_no_period_gives_none(question: str) -> None:
    assert read(question, TODAY).period is None


@pytest.mark.cases(
    ("question", "n"),
    [
        ("Which three products sold best last year?", 3),
        ("top 5 in 2025", 5),
        ("the twenty best", 20),
        ("10 products in the last 3 months", 10),
        ("2025 sales in the last 3 months", None),
        ("which make 80% of revenue", None),
        ("the 80/20 rule", None),
        ("80 per cent", None),
        ("orders over 2 weeks", None),
        ("which one sells best", None),
        ("top 0", None),
        ("1.5 times", None),
    ],
)
def test_a_count_is_neither_a_year_nor_a_share_nor_a_time(question: str, n: int | None) -> None:
    assert read(question, TODAY).n == n


def test_without_today_no_period_is_understood() -> None:
    assert read("revenue last year and in March 2025", None).periods == ()


@pytest.mark.parametrize("text", ["on 2025-02-31", "in 2025-13", "31 february 2025"])
def test_an_impossible_day_or_month_is_no_part_of_a_possible_one(text: str) -> None:
    assert re.search("31|13", read(text, TODAY).marked)


@pytest.mark.parametrize(
    "question", ["compare 2025 and 2024", "is this year better than last year", "March vs February"]
)
def test_two_periods_are_never_made_into_one(question: str) -> None:
    slots = read(question, TODAY)
    assert slots.period is None
    assert len(slots.periods) == 2


def test_a_period_of_the_question_is_marked_with_the_word_in_front_of_it() -> None:
    assert read("Revenue per Month in 2025 by city", TODAY).marked == "revenue per month @p0 by city"


def test_a_month_before_a_leap_day_has_its_own_length() -> None:
    period = read("last month", date(2024, 3, 31)).period
    assert period is not None
    assert (period.start, period.end) == (date(2024, 2, 1), date(2024, 3, 1))
