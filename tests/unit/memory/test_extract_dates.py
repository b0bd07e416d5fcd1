"""Ranges of dates are read as ISO writes them, and nothing else is taken for one."""

from datetime import UTC, datetime

import pytest

from loom_worker.memory.extract import FIRST_MS, LAST_MS, iso_range


def ms(day: str) -> int:
    return int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp() * 1000)


@pytest.mark.cases(
    "text, begin, end",
    [
        *(("2024", "2024-01-01", "2025-01-01"), ("2024-05", "2024-05-01", "2024-06-01")),
        *(("2024-12", "2024-12-01", "2025-01-01"), ("2024-05-17", "2024-05-17", "2024-05-18")),
        *(("2024-02-29", "2024-02-29", "2024-03-01"), ("2024-05-01..2024-05-31", "2024-05-01", "2024-06-01")),
        *(("2024-05-31..2024-05-01", "2024-05-01", "2024-06-01"), ("2024-03/2024-05", "2024-03-01", "2024-06-01")),
        *((" 2024-3-5 to 2024-05 ", "2024-03-05", "2024-06-01"), ("2024-05-17T10:00:00Z", "2024-05-17", "2024-05-18")),
    ],
)
def test_a_range_goes_from_its_first_moment_to_the_end_of_its_last_day(text: str, begin: str, end: str) -> None:
    assert iso_range(text) == (ms(begin), ms(end))


def test_a_range_may_be_open_at_one_end() -> None:
    assert iso_range("2024-05..") == (ms("2024-05-01"), LAST_MS)
    assert iso_range("..2024-05") == (FIRST_MS, ms("2024-06-01"))
    assert iso_range("9999-12..") == (ms("9999-12-01"), LAST_MS)


@pytest.mark.cases(
    "text",
    ["", "..", "last week", "2024-13", "2024-02-30", "24", "2024-05..x", "a..b..c", "0000", "2024-"],
)
def test_what_is_no_range_is_none(text: str) -> None:
    assert iso_range(text) is None
