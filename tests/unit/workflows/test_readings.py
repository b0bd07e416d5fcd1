"""What is read out of agents' answers."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.workflows.readings import (
    Restart,
    Vote,
    choice_of,
    json_in,
    leading_number,
    normalized,
    restart_of,
    schema_error,
    valid_values,
    verdict,
    vote_of,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ("[1, 2]", [1, 2]),
        ('Here it is:\n```json\n{"a": [1]}\n```\nDone.', {"a": [1]}),
        ('Well: {"a": {"b": 2}} as asked.', {"a": {"b": 2}}),
        ("I say [1, 2] then.", [1, 2]),
        ("3", 3),
    ],
)
def test_json_is_found_where_agents_put_it(text: str, value: Any) -> None:
    assert json_in(text) == value


@pytest.mark.parametrize("text", ["", "none", "{a: 1}", "{", "NaN", "[" * 100_000])
def test_what_is_no_json_is_not_taken_for_some(text: str) -> None:
    with pytest.raises(ValueError, match="no JSON"):
        json_in(text)


@pytest.mark.cases(
    ("text", "said"),
    [
        ("Yes.", True),
        ("**No**, it lacks a total.", False),
        ("PASS", True),
        ('{"valid": false, "reason": "x"}', False),
        ('```json\n{"passed": true}\n```', True),
        ('{"valid": "no"}', False),
        ("The output is not valid.", None),
        ("It is correct, yes.", None),
        ("", None),
        ("42", None),
    ],
)
def test_a_verdict_is_how_the_answer_begins(text: str, said: bool | None) -> None:
    assert verdict(text) is said


@pytest.mark.cases(
    ("text", "choice"),
    [
        ("simple", "simple"),
        ("  Simple. ", "simple"),
        ("I think so:\ncomplex", "complex"),
        ("complex\nbecause it has many parts", "complex"),
        ("The feature is complex.", "complex"),
        ("very complex", "very complex"),
        ("simple or complex", None),
        ("It is not complex.", None),
        ("There isn't anything complex", None),
        ("I have no answer.", None),
        ("A long text that speaks of something complex among many other things, and decides nothing at all.", None),
        ("", None),
    ],
)
def test_a_choice_is_taken_only_where_it_is_clear(text: str, choice: str | None) -> None:
    assert choice_of(text, ["simple", "complex", "very complex"]) == choice


def test_a_refusal_does_not_choose_the_branch_no() -> None:
    assert choice_of("I have no answer to that.", ["yes", "no"]) is None
    assert choice_of("No.", ["yes", "no"]) == "no"


@pytest.mark.cases(
    ("text", "vote"),
    [
        ("Because.\nVOTE: PostgreSQL\nCONFIDENCE: 0.8", Vote("PostgreSQL", 0.8)),
        ("**Vote:** blue.\n**Confidence:** 75%", Vote("blue", 0.75)),
        ("Choice = A\nConfidence = 90", Vote("A", 0.9)),
        ('{"vote": "red", "confidence": 0.5}', Vote("red", 0.5)),
        ('{"choice": "red", "confidence": "80"}', Vote("red", 0.8)),
        ("VOTE: red", Vote("red", 1.0)),
        ("VOTE: a\nno, I say\nVOTE: b", Vote("b", 1.0)),
        ("VOTE: none", None),
        ('{"vote": "abstain"}', None),
        ("I would vote for red.", None),
        ("", None),
    ],
)
def test_a_vote_is_read_as_json_or_from_its_lines(text: str, vote: Vote | None) -> None:
    assert vote_of(text) == vote


@pytest.mark.cases(
    ("text", "wish"),
    [
        ("Good.\nRESTART draft: shorter, please", Restart("draft", "shorter, please")),
        ("RESTART", Restart("", "")),
        ("RESTART: all of it", Restart("", "all of it")),
        ('{"restart": true, "reason": "x"}', Restart("", "x")),
        ('{"restart": "draft"}', Restart("draft", "")),
        ('{"restart": false}', None),
        ("I will not restart it.", None),
        ("", None),
    ],
)
def test_a_wish_to_begin_again_is_a_line_or_a_member(text: str, wish: Restart | None) -> None:
    assert restart_of(text) == wish


@pytest.mark.cases(
    ("text", "number"),
    [
        ("2", 2),
        ("Answer 2, because", 2),
        ("**#3**", 3),
        ("The best answer: 1", 1),
        ("4", None),
        ("0", None),
        ("Up to 2,000 characters", None),
        ("I cannot choose.", None),
        ("99999999999999", None),
    ],
)
def test_a_number_counts_where_the_answer_begins_with_it(text: str, number: int | None) -> None:
    assert leading_number(text, most=3) == number


SCHEMA = {
    "type": "object",
    "required": ["size"],
    "properties": {"size": {"enum": ["S", "M"]}, "parts": {"type": "array", "items": {"enum": [1]}}},
}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('{"size": "S"}', ""),
        ("hello", "JSON is needed, and there is no JSON in it"),
        ("{}", "'size' is a required property"),
        ('{"size": "L"}', "size: 'L' is not one of ['S', 'M']"),
        ('{"size": "S", "parts": [2]}', "parts[0]: 2 is not one of [1]"),
    ],
)
def test_an_output_that_is_not_as_its_schema_says_is_told_where(text: str, error: str) -> None:
    assert schema_error(text, SCHEMA, shows_values=True) == error


def test_values_are_named_only_where_the_file_lets_them_be() -> None:
    assert schema_error('{"size": "L"}', SCHEMA, shows_values=False) == "size: the value is not allowed"
    assert valid_values(SCHEMA) == ['size: "S", "M"', "parts[]: 1"]


@given(st.text())
def test_whatever_an_agent_says_can_be_read(text: str) -> None:
    verdict(text)
    choice_of(text, ["a", "b"])
    vote_of(text)
    restart_of(text)
    leading_number(text, most=3)
    schema_error(text, SCHEMA, shows_values=True)
    assert normalized(normalized(text)) == normalized(text)
