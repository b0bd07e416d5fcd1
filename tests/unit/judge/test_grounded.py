import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.judge.grounded import grounded

TABLE = '{"rows":[["2026-01",107083.65,685],["2026-02",92408.87,502]]}'
ROWS = '[{"product": "Mossby Studio Microphone", "revenue": 38458.41, "units": 267, "share": 0.1234, "delta": -12.5}]'
QUESTION = "How did the Mossby microphone do in 2025?"


def score(answer: str, *parts: str) -> float:
    return grounded(answer, [ROWS, QUESTION], parts or ("numbers", "names")).score


@pytest.mark.cases(
    "answer",
    [
        "The Mossby Studio Microphone brought in 38,458.41, with 267 units.",
        "About 38.5 thousand, or 38.5k, that is 38458.",
        "38.458,41 in all, 267pcs.",
        "A share of 12 %, or 12.3 percent; it fell by 12.5.",
        "1. Mossby: 267\n2. 2025 as a whole: **38,458**",
        "In March the Microphone did well.",
        "From 2024-01-01 to 31.12.2024, so in 2024, 267 units.",
        "## Result\n\n| Product | Units |\n|---|---|\n| Mossby | 267 |",
        "Nothing to report.",
        "",
    ],
)
def test_what_the_tools_returned_is_grounded_however_it_is_written(answer: str) -> None:
    found = grounded(answer, [ROWS, QUESTION])
    assert (found.score, found.critique) == (1.0, "")


@pytest.mark.cases(
    "answer, missing",
    [
        ("It sold 268 units.", "268"),
        ("It sold 267 units in Berlin.", "Berlin"),
        ("Revenue was 1.5 million.", "1.5 million"),
        ("38,458.42", "38,458.42"),
        ("A share of 14 %.", "14 %"),
        ("The Larkmere did better.", "Larkmere"),
        ("It took 999km.", "999"),
    ],
)
def test_what_they_did_not_is_named(answer: str, missing: str) -> None:
    found = grounded(answer, [ROWS, QUESTION])
    assert found.score < 1.0
    assert found.critique == f"not in the results of this turn's tools: {missing}"


def test_numbers_of_a_row_without_spaces_are_numbers_each() -> None:
    assert grounded("January: 107,083.65 with 685 orders, February: 92,409 with 502.", [TABLE]).score == 1.0
    assert grounded("It was 685,502.", [TABLE]).score == 1.0
    assert grounded("January: 107,083.66.", [TABLE]).score < 1.0


def test_one_part_alone_can_be_looked_for() -> None:
    assert score("268 in Berlin.", "names") == 0.0
    assert score("268 in Berlin.", "numbers") == 0.0
    assert score("267 in Berlin.", "numbers") == 1.0
    assert score("268 by Mossby.", "names") == 1.0


def test_a_long_list_of_what_is_missing_is_cut() -> None:
    critique = grounded(", ".join(map(str, range(1000, 1030))), [ROWS]).critique
    assert critique.endswith("and 20 more")


@given(st.text(max_size=300))
def test_an_answer_that_repeats_its_source_is_grounded(text: str) -> None:
    assert grounded(text, [text]).score == 1.0


@given(st.decimals(min_value=1, max_value=10**9, places=2), st.integers(0, 2))
def test_a_number_is_grounded_in_what_it_was_rounded_from(number: object, digits: int) -> None:
    assert grounded(f"{number:.{digits}f}", [f"value: {number}"], ("numbers",)).score == 1.0
