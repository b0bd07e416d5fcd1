import pytest

from loom_worker.patterns.words import terms


def single(text: str) -> list[str]:
    return [term for term in terms(text) if " " not in term]


def test_function_words_and_endings_do_not_count() -> None:
    assert single("Which of the categories were selling?") == ["category", "sell"]


def test_neighbouring_words_are_terms_too() -> None:
    assert terms("average order value") == ["average", "order", "value", "average order", "order value"]


@pytest.mark.parametrize(
    "period", ["last year", "this month", "the past 3 months", "in March", "March 2025", "2025", "Q3 2025"]
)
def test_a_period_is_not_what_a_question_is_about(period: str) -> None:
    assert terms(f"revenue {period}") == terms("revenue")


def test_two_periods_are_a_comparison() -> None:
    assert single("revenue in 2024 and 2025") == ["revenue", "versus"]


def test_a_measure_of_time_stays_a_word() -> None:
    assert single("revenue per month") == ["revenue", "per", "month"]


@pytest.mark.parametrize("text", ["", "?!", "the of and", "2025"])
def test_a_text_that_says_nothing_has_no_terms(text: str) -> None:
    assert terms(text) == []
