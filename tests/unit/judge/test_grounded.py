import json
from collections import Counter
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.core.values.judges import CannotTell
from loom_worker.judge.grounded import MOST_SCORE, findings, grounded

TABLE = '{"rows":[["2026-01",107083.65,685],["2026-02",92408.87,502]]}'
ROWS = '[{"product": "Mossby Studio Microphone", "revenue": 38458.41, "units": 267, "share": 0.1234, "delta": -12.5}]'
QUESTION = "How did the Mossby microphone do in 2025?"


def score(answer: str, *parts: str) -> float:
    return grounded(answer, [ROWS], parts or ("numbers", "names"), question=QUESTION).score or 0.0


@pytest.mark.cases(
    "answer",
    [
        "The Mossby Studio Microphone brought in 38,458.41, with 267 units.",
        "About 38.5 thousand, or 38.5k, that is 38458.",
        "38.458,41 in all, 267pcs.",
        "A share of 12 %, or 12.3 percent; it fell by 12.5.",
        "1. Mossby: 267\n2. 2025 as a whole: **38,458**",
        "## Result\n\n| Product | Units |\n|---|---|\n| Mossby | 267 |",
        "Nothing to report.",
        "",
    ],
)
def test_what_the_tools_returned_is_grounded_however_it_is_written(answer: str) -> None:
    found = grounded(answer, [ROWS], question=QUESTION)
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
        ("It took 999km.", "999km"),
        ("In 2024 it sold 267 units.", "2024"),
        ("It sold two hundred and sixty-eight units.", "268"),
        ("It sold $267.", "$267"),
        ("It rose by 12.5.", "12.5"),
    ],
)
def test_what_they_did_not_is_named(answer: str, missing: str) -> None:
    found = grounded(answer, [ROWS], question=QUESTION)
    assert found.score < 1.0
    assert found.critique == f"not in the results of this turn's tools: {missing}"


def test_numbers_of_a_row_without_spaces_are_numbers_each() -> None:
    assert grounded("January: 107,083.65 with 685 orders, February: 92,409 with 502.", [TABLE]).score == 1.0
    assert grounded("January: 107,083.66.", [TABLE]).score < 1.0


def test_one_part_alone_can_be_looked_for() -> None:
    assert score("268 in Berlin.", "names") == 0.0
    assert score("268 in Berlin.", "numbers") == 0.0
    assert score("267 in Berlin.", "numbers") == 1.0
    assert score("268 by Mossby.", "names") == 1.0


def test_a_long_list_of_what_is_missing_is_cut() -> None:
    critique = grounded(", ".join(map(str, range(1000, 1030))), [ROWS]).critique
    assert critique.endswith("and 20 more")


@pytest.mark.cases(
    "answer",
    [
        "In all 199,492.52 with 1,187 orders.",
        "The second month brought in 14 % less, 14,674.78.",
        "February: about 92,400, roughly 184 dollars an order.",
        "February had a hundred and eighty-three orders fewer.",
    ],
)
def test_what_is_computed_from_few_values_is_grounded(answer: str) -> None:
    table = TABLE.replace('{"rows"', '{"columns":["month","revenue","orders"],"rows"')
    assert grounded(answer, [table], ("numbers",), question="How was early 2026?").score == 1.0


@pytest.mark.cases(
    "answer, result",
    [
        ("It rose by 12 %.", "Sales fell by 12 %."),
        ("It rose from 80 to 70.", "80 in May, 70 in June."),
        ("It takes 42 hours.", "It takes 42 min."),
        ("Oslo has the most, 3.", '[{"city": "Oslo", "shops": 3}, {"city": "Bonn", "shops": 5}]'),
        ("Oslo has 5 shops.", '[{"city": "Oslo", "shops": 3}, {"city": "Bonn", "shops": 5}]'),
        ("It costs $30.", '{"price": 30, "currency": "EUR"}'),
        ("Oslo opened on 3 May 2025.", '[["Oslo", "2025-04-02"], ["Bonn", "2025-05-03"]]'),
        ("It opens at 18:45.", "It is open from 17:45 to 18:30."),
    ],
)
def test_a_number_that_is_there_but_means_something_else_is_not_grounded(answer: str, result: str) -> None:
    assert (grounded(answer, [result], ("numbers",)).score or 0.0) <= MOST_SCORE


def test_a_number_of_the_question_is_no_evidence_but_its_limit_may_be_said_again() -> None:
    asked = "Did we sell more than 500 lamps?"
    assert grounded("Yes, you sold 500 lamps.", ["lamps sold: 267"], question=asked).score != 1.0
    assert grounded("No, not more than 500 but 267.", ["lamps sold: 267"], question=asked).score == 1.0


def test_one_wrong_number_among_many_right_ones_does_not_pass_a_usual_threshold() -> None:
    values = [137, 251, 389, 467, 593, 641, 743, 859, 977]
    found = grounded(", ".join(map(str, [*values, 1235])), [str(values)])
    assert found.score == MOST_SCORE


@pytest.mark.cases("cannot_tell, score", [("skip", None), ("pass", 1.0), ("fail", 0.0)])
def test_what_any_large_result_would_give_by_accident_counts_as_the_file_says(
    cannot_tell: CannotTell, score: float | None
) -> None:
    rows = json.dumps([{"city": f"City {n}", "revenue": n * n * 1.37} for n in range(200)])
    found = grounded("The difference is 4,711.", [rows], cannot_tell=cannot_tell)
    assert (found.score, found.is_undecided) == (score, True)
    assert found.critique == "cannot be told from the results of this turn's tools: 4,711"


def test_a_month_is_not_judged_where_no_month_is_known() -> None:
    found = grounded("In March it did well, from 2024-01-01 on.", [ROWS], question=QUESTION)
    assert (found.score, found.is_undecided) == (None, True)


def test_what_was_found_for_a_number_can_be_read() -> None:
    rows = '[{"city": "Oslo", "shops": 3}, {"city": "Bonn", "shops": 12}]'
    answer = "Oslo has 3 shops, Bonn 9 more; in all there are 15. Bonn has 80 %."
    hows = ["shops 3", "shops 3 to shops 12", "total of shops", "shops 12 of total of shops"]
    assert [each.how for each in findings(answer, [rows], ("numbers",), "")] == hows


@pytest.mark.cases("part", ["development", "held_out", "fresh"])
def test_true_answers_are_accepted_and_false_ones_rejected_as_docs_quality_says(part: str) -> None:
    file = Path(__file__).parent / "data" / f"grounded_{part}.yaml"
    scores = Counter(
        (key, grounded(answer, case["results"], question=case["question"]).score)
        for case in yaml.safe_load(file.read_text(encoding="utf-8"))
        for key in (True, False)
        for answer in case.get(str(key).lower(), ())
    )
    assert scores[False, 1.0] <= 2
    assert sum(n for (is_true, given_score), n in scores.items() if is_true and given_score not in (None, 1.0)) <= 3


@pytest.mark.cases(
    "result", ["[1e999, -Infinity, 1" + 400 * "0" + "]", "On 31 February 2025 at 25:61, 2025-13-45.", "9" * 50, "[]"]
)
def test_a_result_of_odd_values_is_read(result: str) -> None:
    assert grounded("3 of 10 on 30 February 2025, 7:99.", [result, ""], question="\U00011f50 in 0?").critique != ""


@given(st.text(max_size=300))
def test_an_answer_that_repeats_its_source_is_grounded(text: str) -> None:
    assert grounded(text, [text]).score == 1.0


@given(st.decimals(min_value=1, max_value=10**9, places=2), st.integers(0, 2))
def test_a_number_is_grounded_in_what_it_was_rounded_from(number: object, digits: int) -> None:
    assert grounded(f"{number:.{digits}f}", [f"value: {number}"], ("numbers",)).score == 1.0
