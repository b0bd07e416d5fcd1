"""What span of time the words of a text name."""

from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.core.date_ranges import date_range, date_spans

NOW = datetime(2023, 10, 18, 15, 30, tzinfo=UTC)
"""A Wednesday."""


def days(text: str, *, now: datetime = NOW) -> tuple[str, str] | None:
    found = date_range(text, now_ms=int(now.timestamp() * 1000))
    return found and tuple(datetime.fromtimestamp(ms / 1000, UTC).isoformat()[:10] for ms in found)  # type: ignore[return-value]


@pytest.mark.cases(
    ("text", "first", "behind"),
    [
        ("What did we decide on 7 May 2023?", "2023-05-07", "2023-05-08"),
        ("May 7th, 2023", "2023-05-07", "2023-05-08"),
        ("the 7th of May", "2023-05-07", "2023-05-08"),
        ("on December 4", "2022-12-04", "2022-12-05"),
        ("on 29 February", "2020-02-29", "2020-03-01"),
        ("2023-05-07", "2023-05-07", "2023-05-08"),
        ("am 7.5.2023", "2023-05-07", "2023-05-08"),
        ("2023年5月7日", "2023-05-07", "2023-05-08"),
        ("25/07/2023", "2023-07-25", "2023-07-26"),
        ("5/25/2023", "2023-05-25", "2023-05-26"),
        ("2023-05", "2023-05-01", "2023-06-01"),
        ("in May 2022", "2022-05-01", "2022-06-01"),
        ("in May", "2023-05-01", "2023-06-01"),
        ("last May", "2023-05-01", "2023-06-01"),
        ("last October", "2022-10-01", "2022-11-01"),
        ("this October", "2023-10-01", "2023-11-01"),
        ("next May", "2024-05-01", "2024-06-01"),
        ("in November", "2022-11-01", "2022-12-01"),
        ("in 2023", "2023-01-01", "2024-01-01"),
        ("2023", "2023-01-01", "2024-01-01"),
        ("last year", "2022-01-01", "2023-01-01"),
        ("Q2 2023", "2023-04-01", "2023-07-01"),
        ("first quarter of 2022", "2022-01-01", "2022-04-01"),
        ("last summer", "2023-06-01", "2023-09-01"),
        ("this summer", "2023-06-01", "2023-09-01"),
        ("last autumn", "2022-09-01", "2022-12-01"),
        ("last winter", "2022-12-01", "2023-03-01"),
        ("in the winter of 2021", "2021-12-01", "2022-03-01"),
        ("next summer", "2024-06-01", "2024-09-01"),
        ("today", "2023-10-18", "2023-10-19"),
        ("yesterday", "2023-10-17", "2023-10-18"),
        ("the day before yesterday", "2023-10-16", "2023-10-17"),
        ("tomorrow", "2023-10-19", "2023-10-20"),
        ("last night", "2023-10-17", "2023-10-18"),
        ("three days ago", "2023-10-15", "2023-10-16"),
        ("two weeks ago", "2023-10-01", "2023-10-08"),
        ("a few months ago", "2023-07-01", "2023-08-01"),
        ("11 months ago", "2022-11-01", "2022-12-01"),
        ("a year ago", "2022-01-01", "2023-01-01"),
        ("over the last two weeks", "2023-10-04", "2023-10-19"),
        ("this week", "2023-10-16", "2023-10-23"),
        ("last week", "2023-10-09", "2023-10-16"),
        ("next weekend", "2023-10-28", "2023-10-30"),
        ("last month", "2023-09-01", "2023-10-01"),
        ("on Monday", "2023-10-16", "2023-10-17"),
        ("last Wednesday", "2023-10-11", "2023-10-12"),
        ("this Friday", "2023-10-20", "2023-10-21"),
        ("next Wednesday", "2023-10-25", "2023-10-26"),
        ("early June 2023", "2023-06-01", "2023-06-11"),
        ("mid-June 2023", "2023-06-11", "2023-06-21"),
        ("at the end of August", "2023-08-21", "2023-09-01"),
        ("the second week of June 2023", "2023-06-08", "2023-06-15"),
        ("the last week of June 2023", "2023-06-24", "2023-07-01"),
        ("since June", "2023-06-01", "2023-10-19"),
        ("over the last two months", "2023-08-18", "2023-10-19"),
        ("last quarter", "2023-07-01", "2023-10-01"),
        ("two quarters ago", "2023-04-01", "2023-07-01"),
        ("the current year", "2023-01-01", "2024-01-01"),
        ("year to date", "2023-01-01", "2023-10-19"),
        ("in March last year", "2022-03-01", "2022-04-01"),
        ("March of this year", "2023-03-01", "2023-04-01"),
        ("the second half of 2022", "2022-07-01", "2023-01-01"),
        ("H1 2022", "2022-01-01", "2022-07-01"),
        ("before 2022", "0001-01-01", "2022-01-01"),
        ("until March 2023", "0001-01-01", "2023-04-01"),
        ("after 5 May 2023", "2023-05-06", "2023-10-19"),
        ("in the week before 16 November 2022", "2022-11-09", "2022-11-16"),
        ("from May to July 2022", "2022-05-01", "2022-08-01"),
        ("between August 11 and August 15 2022", "2022-08-11", "2022-08-16"),
        ("2023-05-01..2023-05-07", "2023-05-01", "2023-05-08"),
        ("2023-05-01 to 2023-05-07", "2023-05-01", "2023-05-08"),
        ("what happened last week, as you said on 6 November 2022?", "2022-10-24", "2022-10-31"),
    ],
)  # fmt: skip
def test_a_date_in_words_is_a_range_of_whole_days(text: str, first: str, behind: str) -> None:
    assert days(text) == (first, behind)


@pytest.mark.cases(
    "text",
    [
        "", "What did she buy?", "May I ask you something?", "march on", "What did April say?", "fall over",
        "05/07/2023", "on Mondays", "we have 2023 apples", "31 June", "2023-13-40", "in which month?",
    ],
)  # fmt: skip
def test_what_only_looks_like_a_date_or_is_ambiguous_names_no_time(text: str) -> None:
    assert days(text) is None


def test_a_day_of_february_without_a_year_skips_the_years_that_lack_it() -> None:
    assert days("29 February", now=datetime(1905, 1, 1, tzinfo=UTC)) == ("1904-02-29", "1904-03-01")


@given(
    st.text(max_size=60) | st.sampled_from(["999 years ago", "last 999 years", "before 1 January 1900", "next year"]),
    st.datetimes(datetime(1970, 1, 2), datetime(2200, 1, 1), timezones=st.just(UTC)),
)
def test_no_text_raises_and_every_range_has_a_day(text: str, now: datetime) -> None:
    found = date_range(text, now_ms=int(now.timestamp() * 1000))
    assert found is None or found[0] < found[1]


@given(st.dates(date(1970, 1, 1), date(2099, 12, 31)))
def test_every_day_is_read_as_iso_has_it_and_as_it_is_written(day: date) -> None:
    written = f"{day:%B} {day.day}, {day.year}"
    assert days(day.isoformat()) == days(written)
    assert (days(written) or [""])[0] == day.isoformat()


@pytest.mark.cases(
    ("text", "spans"),
    [
        ("revenue 2022 or Q1", [("2022", "2022-01-01", "2023-01-01"), ("q1", "2023-01-01", "2023-04-01")]),
        ("march vs may", [("march", "2023-03-01", "2023-04-01"), ("may", "2023-05-01", "2023-06-01")]),
        ("2021 and 2022", [("2021", "2021-01-01", "2022-01-01"), ("2022", "2022-01-01", "2023-01-01")]),
        ("this year against 2021", [("this year", "2023-01-01", "2024-01-01"), ("2021", "2021-01-01", "2022-01-01")]),
        ("from October to March 2022", [("from october to march 2022", "2021-10-01", "2022-04-01")]),
        ("since the 7 May 2023", [("since the 7 may 2023", "2023-05-07", "2023-10-19")]),
        ("over 2000 in November week", []),
        ("from 2023 to 2021", []),
    ],
)
def test_each_date_of_a_question_has_its_place_and_two_are_one_only_from_to(
    text: str, spans: list[tuple[str, str, str]]
) -> None:
    found = date_spans(text, NOW.date())
    assert [(text[start:end].lower(), str(days[0]), str(days[1])) for start, end, days in found] == spans
