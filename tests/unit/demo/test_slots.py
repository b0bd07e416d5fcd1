"""The number and the periods of a question: dates are read by ``core/date_ranges``, whose tests hold the words."""

from datetime import date

import pytest

from loom_worker.demo.slots import read

TODAY = date(2026, 11, 21)


@pytest.mark.cases(
    ("question", "start", "end", "wording"),
    [
        ("best products last year", "2025-01-01", "2026-01-01", "last year"),
        ("this year", "2026-01-01", "2026-11-22", "this year"),
        ("this quarter", "2026-10-01", "2026-11-22", "this quarter"),
        ("in November", "2026-11-01", "2026-11-22", "november"),
        ("in 2026 so far", "2026-01-01", "2026-11-22", "2026"),
        ("the second half of 2026", "2026-07-01", "2026-11-22", "the second half of 2026"),
        ("in 2031", "2031-01-01", "2032-01-01", "2031"),
        ("2025 revenue", "2025-01-01", "2026-01-01", "2025"),
        ("before May 2024", "0001-01-01", "2024-05-01", "before may 2024"),
        ("after 2023", "2024-01-01", "2026-11-22", "after 2023"),
        ("from March to May 2025", "2025-03-01", "2025-06-01", "from march to may 2025"),
        ("between 2024 and 2025", "2024-01-01", "2026-01-01", "between 2024 and 2025"),
        ("past twelve months", "2025-11-21", "2026-11-22", "past 12 months"),
    ],
)
def test_a_period_is_the_days_it_says_up_to_today(question: str, start: str, end: str, wording: str) -> None:
    period = read(question, TODAY).period
    assert period is not None
    assert (str(period.start), str(period.end), period.wording) == (start, end, wording)


@pytest.mark.cases(
    ("question", "marked"),
    [
        ("Revenue per Month in 2025 by city", "revenue per month @p0 by city"),
        ("which may sell", "which may sell"),
        ("order 20255 in 1850", "order 20255 in 1850"),
        ("spent over 2000", "spent over 2000"),
        ("the November week in 2025", "the november week @p0"),
        ("on 2025-02-31", "on 2025-02-31"),
        ("revenue next month", "revenue next month"),
        ("31 february 2025", "31 @p0"),
        ("compare 2024 and 2025", "compare @p0 and @p1"),
        ("is this year better than last year", "is @p0 better than @p1"),
        ("March vs February", "@p0 vs @p1"),
    ],
)
def test_each_period_is_marked_two_are_never_made_into_one_and_what_is_none_stays(question: str, marked: str) -> None:
    assert read(question, TODAY).marked == marked


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


@pytest.mark.cases(
    ("question", "before"),
    [
        ("in March", ("2026-02-01", "2026-03-01")),
        ("in Q3 2025", ("2025-04-01", "2025-07-01")),
        ("last week", ("2026-11-02", "2026-11-09")),
        ("this month", ("2026-10-01", "2026-10-22")),
        ("last summer", ("2025-06-01", "2025-09-01")),
        ("the last 30 days", None),
    ],
)
def test_before_a_unit_of_the_calendar_stands_another_and_before_a_season_that_of_last_year(
    question: str, before: tuple[str, str] | None
) -> None:
    period = read(question, TODAY).period
    assert period is not None
    assert (period.before and tuple(map(str, period.before))) == before


def test_without_today_no_period_is_understood() -> None:
    assert read("revenue last year and in March 2025", None).periods == ()
