import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.core.errors import BadSettings
from loom_worker.judge.checks import Opinion, contains, fits, matches, validator

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"total": {"type": "number", "multipleOf": 0.5}, "unit": {"type": "string", "pattern": "^[A-Z]{3}$"}},
    "required": ["total"],
}


@pytest.mark.cases(
    "answer, criteria, score",
    [
        ("In total 42 EUR.", {"all": ["42", "eur"]}, 1.0),
        ("In total 42 USD.", {"all": ["42", "eur"]}, 0.5),
        ("As an AI I cannot.", {"none": ["as an  ai", "sorry"]}, 0.5),
        ("Yes.", {"any": ["yes", "no"]}, 1.0),
        ("Perhaps.", {"any": ["yes", "no"]}, 0.0),
        ("Straße\n 5", {"all": ["STRASSE 5"]}, 1.0),
    ],
)
def test_texts_are_looked_for_without_regard_to_case_and_blanks(
    answer: str, criteria: dict[str, list[str]], score: float
) -> None:
    assert contains(answer, criteria).score == score


def test_a_critique_names_what_is_missing_and_what_is_too_much() -> None:
    found = contains("Sorry.", {"all": ["42"], "none": ["sorry"], "any": ["yes", "no"]})
    assert found == Opinion(0.0, "'42' is missing; 'sorry' must not occur; one of 'yes', 'no' is missing")


def test_patterns_are_found_anywhere() -> None:
    assert matches("Order 4711 is paid.", [r"\b\d{4}\b", "(?i)PAID"]) == Opinion(1.0)
    assert matches("Order 4711.", [r"\d{4}", "paid"]) == Opinion(0.5, "nothing matches the pattern paid")


@pytest.mark.heavy
def test_an_answer_that_a_pattern_would_search_for_ages_does_not_pass() -> None:
    spite = "a" * 5_000 + "!"
    assert matches(spite, ["(a|aa)+$"]).score == 0.0
    assert fits(json.dumps(spite), {"type": "string", "pattern": "^(a|aa)+$"}).score == 0.0


@pytest.mark.cases(
    "score, found",
    [
        (0.2, matches("1", ["1", "2", "3", "4", "5"])),
        (0.45, contains("123456789", {"all": [str(n) for n in [*range(1, 10), *range(100, 111)]]})),
        (0.1, contains("1", {"all": [str(n) for n in range(1, 11)]})),
    ],
)
def test_a_share_is_no_less_than_it_is(score: float, found: Opinion) -> None:
    assert found.score == score


@pytest.mark.cases(
    "answer, score",
    [
        ('{"total": 42}', 1.0),
        ('```json\n{"total": 42, "unit": "EUR"}\n```', 1.0),
        ('{"total": "42"}', 0.0),
        ('{"total": 42, "unit": "euro"}', 0.0),
        ("{}", 0.0),
        ('It is {"total": 42}', 0.0),
        ('{"total": NaN}', 0.0),
        ("", 0.0),
        ("[" * 100_000, 0.0),
        ('{"total": 1e400}', 0.0),
        ('{"total": ' + "9" * 5_000 + "}", 0.0),
    ],
)
def test_an_answer_fits_its_schema_or_not(answer: str, score: float) -> None:
    found = fits(answer, SCHEMA)
    assert found.score == score
    assert bool(found.critique) == (score == 0.0)


@pytest.mark.cases(
    "schema, problem",
    [
        ({"type": "objekt"}, "not a JSON Schema"),
        ({"$ref": "https://example.com/s"}, "refers to"),
        ({"patternProperties": {"^a": {}}}, "patternProperties"),
        ({"pattern": "("}, "not a regular expression"),
        ({"$ref": "#"}, "refers to itself without end"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused(schema: dict[str, Any], problem: str) -> None:
    with pytest.raises(BadSettings, match=problem):
        validator(json.dumps(schema))


@given(st.text(max_size=200), st.lists(st.text(min_size=1, max_size=8).filter(str.strip), min_size=1, max_size=4))
def test_a_score_is_a_share_and_perfect_only_without_a_critique(answer: str, texts: list[str]) -> None:
    for criteria in ({"all": texts}, {"any": texts}, {"none": texts}):
        found = contains(answer, criteria)
        assert 0.0 <= found.score <= 1.0
        assert (found.score == 1.0) == (found.critique == "")
