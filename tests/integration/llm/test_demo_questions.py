"""Sixty questions by somebody who has not seen the demo model's rules: true figures or a refusal, never a guess."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.llm.demo_tables import TODAY, Figures, figures, shop
from tests.support.demo_model import Answered, ask

pytestmark = [pytest.mark.heavy, pytest.mark.takes(26)]

HERE = Path(__file__).parent
ASKED: list[dict[str, Any]] = yaml.safe_load((HERE / "demo_questions.yaml").read_text("utf-8"))
APART: list[dict[str, Any]] = yaml.safe_load((HERE / "demo_questions_apart.yaml").read_text("utf-8"))
QUESTIONS = {int(one["id"]): one for one in ASKED}
REFUSED = frozenset({21, 37, 38, 44, 45, 50, 51, 53, 54, 55, 56, 57, 58, 59, 60})
"""All others are answered."""
CONDITIONS = (
    "in Berlin",
    "without returns",
    "without Berlin",
    "on Sundays",
    "compared with 2023",
    "in March",
    "for business customers",
    "of the Audio category",
    "that were not cancelled",
    "except in Germany",
    "with a discount",
    "before noon",
    "over 500",
    "paid by card",
    "and why",
    "in the Munich store",
    "since 2025",
    "in Atlantis",
)


@cache
def answered(question: str) -> Answered:
    return ask(question, shop(), TODAY)


def true_rows(question: dict[str, Any]) -> Figures:
    """The rows of its writer's SQL, or of that for another fair reading."""
    return figures(question.get("reading") or question["sql"])


def is_same(true: Any, told: Any) -> bool:
    """Money to the cent, as sums of floats differ behind it; a month is told by its days."""
    if isinstance(true, str) or isinstance(told, str):
        return isinstance(told, str) and isinstance(true, str) and (told == true or told.startswith(f"{true}-"))
    return told is not None and true is not None and abs(true - told) < 0.02


def holds(told: tuple[Any, ...], true: tuple[Any, ...]) -> bool:
    return all(any(is_same(value, other) for other in told) for value in true)


def is_true(answer: Answered, rows: Figures) -> bool:
    """Does the answer rest on just these rows? More rows may follow those of a truth that has a first place only."""
    if not answer.sql:
        return sorted(answer.text.partition("\n\n")[0].splitlines()[1:]) == sorted(" ".join(row) for row in rows)
    told = list(answer.rows)
    if answer.columns[-1:] == ("rows_in_all",) and "the first 40 are listed" in answer.text:
        return told[0][-1] == len(rows) and all(any(holds(one, row) for row in rows) for one in told)
    if len(rows) == 1:
        return bool(told) and holds(told[0], rows[0])
    return len(told) == len(rows) and all(any(holds(one, row) for one in told) for row in rows)


@pytest.mark.parametrize("number", sorted(set(QUESTIONS) - REFUSED))
def test_an_answer_has_just_the_true_figures(number: int) -> None:
    question = QUESTIONS[number]
    answer = answered(question["question"])
    assert not answer.is_refusal
    assert is_true(answer, true_rows(question)), answer.text


@pytest.mark.parametrize("number", sorted(REFUSED))
def test_a_question_that_is_not_understood_whole_is_refused_without_a_figure(number: int) -> None:
    answer = answered(QUESTIONS[number]["question"])
    assert answer.is_refusal
    assert answer.sql == ""
    assert "I cannot put" in answer.text or "I cannot restrict" in answer.text
    said = set(re.findall(r"\d+", QUESTIONS[number]["question"]))
    assert set(re.findall(r"\d+", answer.text.splitlines()[0])) <= said | {"5", "2"}


def test_three_quarters_are_answered_and_what_the_data_cannot_answer_is_not() -> None:
    assert len(QUESTIONS) == 60
    assert len(QUESTIONS) - len(REFUSED) == 45
    assert {number for number, one in QUESTIONS.items() if one["sql"] is None} <= REFUSED


def test_sixty_questions_that_the_rules_were_not_made_for_are_answered_truly_or_refused() -> None:
    told = [(one, answered(one["question"])) for one in APART]
    given = [(one, answer) for one, answer in told if not answer.is_refusal]
    assert (len(APART), len(given)) == (60, 17)
    assert [one["question"] for one, answer in given if not is_true(answer, true_rows(one))] == []


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_condition_more_is_refused_or_changes_what_is_asked_of_the_database(condition: str) -> None:
    silent = []
    for number in sorted(set(QUESTIONS) - REFUSED)[CONDITIONS.index(condition) % 5 :: 5]:
        question = QUESTIONS[number]["question"].rstrip("?. ")
        more = answered(f"{question} {condition}")
        if not more.is_refusal and more.sql == answered(QUESTIONS[number]["question"]).sql:
            silent.append(f"{question} {condition}")
    assert silent == []
