"""What the engine adds to questions, as the demo model reads it; over a shop of a few rows with known figures."""

from datetime import date
from typing import Any

import pytest

from loom_worker.demo.prompts import UNCHANGED, Prompt, read_prompt
from tests.support.tiny_shop import open_shop
from tests.unit.demo.played import Played, of_spec

TODAY = date(2026, 11, 21)
BEST = "Which category has the highest revenue in 2025?"


def run(spec: dict[str, Any], **said: str) -> Played:
    return of_spec(spec, open_shop(), TODAY, **said)


def swarm(question: str, **more: Any) -> dict[str, Any]:
    return {"type": "swarm", "question": question, "agent_ids": ["one", "two", "three"], **more}


def conditional(prompt: str, *branches: str, **more: Any) -> dict[str, Any]:
    """Each branch asks for an answer of its own."""
    years = {name: f"What was our revenue in {2024 + n}?" for n, name in enumerate(branches)}
    asked = {name: {"type": "fork-join", "prompt": prompt, "agent_ids": ["a"]} for name, prompt in years.items()}
    return {"type": "conditional", "condition_agent_id": "a", "condition_prompt": prompt, "branches": asked, **more}


def pipeline(*stages: Any, **more: Any) -> dict[str, Any]:
    listed = [{"agent_id": "a", "prompt_template": each} if isinstance(each, str) else each for each in stages]
    return {"type": "pipeline", "initial_prompt": "Begin.", "stages": listed, **more}


@pytest.mark.cases(
    ("text", "read"),
    [
        ("Revenue?", Prompt("Revenue?")),
        (
            "Up?\nAnswer with one word: rose, dropped or unchanged.",
            Prompt("Up?", "choice", ("rose", "dropped", "unchanged")),
        ),
        ("Best? Reply with one of these: Audio, Coffee & Tea", Prompt("Best?", "choice", ("Audio", "Coffee & Tea"))),
        ("Up? Answer with yes or no.", Prompt("Up?", "choice", ("yes", "no"))),
        ("Up? Answer with one word.", Prompt("Up? Answer with one word.")),
        ("Up? Answer with one word: rose.", Prompt("Up? Answer with one word: rose.")),
        ("Answer with one word: a, b. Revenue?", Prompt("Answer with one word: a, b. Revenue?")),
        ("Revenue?\n\nWhat was said before:\n\n[a]\nAnswer with yes or no.", Prompt("Revenue?")),
    ],
)
def test_a_question_is_read_apart_from_the_form_of_its_answer(text: str, read: Prompt) -> None:
    assert read_prompt(text) == read


def test_earlier_answers_beside_a_question_change_nothing() -> None:
    found = run(pipeline("Revenue in Lyon", BEST, pass_full_history=True))
    alone = run(pipeline(BEST))
    assert "[a]\nRevenue" in found.prompts["stages.1"]
    assert found.end.output == alone.end.output
    assert "1. Tents: revenue 1,320.00" in str(found.end.output)


def test_a_stage_that_may_ask_for_another_iteration_answers_its_question() -> None:
    found = run({"type": "iterative", "pipeline": pipeline(BEST)})
    assert "RESTART" in found.prompts["iterations.0.stages.0"]
    assert found.end.status == "completed"
    assert "1. Tents: revenue 1,320.00" in str(found.end.output)


def test_what_must_be_better_than_the_last_time_is_refused() -> None:
    spec = {"type": "iterative", "pipeline": pipeline(BEST), "max_iterations": 2}
    found = run(spec, iterations__0__stages__0="RESTART: say it in French")
    assert str(found.end.output).startswith("I have no answer")


@pytest.mark.cases(
    ("question", "chosen"),
    [
        ("Did sales drop in Q4 2025? Answer with yes or no.", "yes"),
        ("Did sales rise in Q4 2025? Answer with yes or no.", "no"),
        ("How does our revenue for Q4 2025 compare with the period before it? Answer with one word: up, down.", "down"),
        ("How does our revenue for 2025 compare with the one before? Answer with one word: up, down, flat.", "up"),
        (f"{BEST} Answer with one of these: Lamps, Tents.", "Tents"),
        ("Which category has the highest revenue in Lyon? Answer with one of these: Lamps or Tents", "Tents"),
    ],
)
def test_a_choice_that_the_rows_decide_is_made_and_nothing_else_said(question: str, chosen: str) -> None:
    names = [name for name in ("yes", "no", "up", "down", "Lamps", "Tents") if name in question]
    found = run(conditional(question, *names))
    assert found.outputs["condition"] == chosen
    assert f"(20{24 + names.index(chosen)})" in str(found.end.output)


@pytest.mark.cases(
    ("question", "branches"),
    [
        ("Is this a good year? Answer with yes or no.", ("yes", "no")),
        ("Why did sales drop in Q4 2025? Answer with yes or no.", ("yes", "no")),
        ("Did sales drop in Q3 2025? Answer with yes or no.", ("yes", "no")),
        (f"{BEST} Answer with yes or no.", ("yes", "no")),
        ("How many orders were there in 2025? Answer with one word: many, few.", ("many", "few")),
        (f"{BEST} Answer with one word: Lamps, Chairs.", ("Lamps", "Chairs")),
        ("Which 2 categories have the highest revenue? Answer with one word: Tents, Lamps.", ("Tents", "Lamps")),
        ("How does our revenue for 2025 compare with the one before? Answer with one word: up, rose.", ("up", "rose")),
        ("Which category has the most orders? Answer with one word: orders, returns.", ("orders", "returns")),
        ("Show me all tables. Answer with yes or no.", ("yes", "no")),
        ("What is the return rate by category? Answer with one word: Tents, Lamps.", ("Tents", "Lamps")),
    ],
)
def test_a_choice_that_the_rows_do_not_decide_is_not_made(question: str, branches: tuple[str, ...]) -> None:
    found = run(conditional(question, *branches))
    assert found.outputs["condition"].startswith("Undecided.")
    assert (found.end.status, found.end.reason) == ("failed", "no-branch")


def test_a_choice_between_groups_that_share_the_first_place_is_not_made() -> None:
    shop = open_shop()
    shop.execute("UPDATE order_lines SET quantity = 1, unit_price = 10, discount = 0")
    asked = conditional("Which category has the highest revenue in March 2025? Answer with one of these: Tents, Lamps.")
    asked["branches"] = conditional("", "Tents", "Lamps")["branches"]
    assert of_spec(asked, shop, TODAY).end.reason == "no-branch"


def test_an_answer_that_was_not_taken_is_not_given_in_other_words() -> None:
    found = run(conditional("What shall we do?", "yes", "no", retry_policy={"max_retries": 1}), condition="Hm.")
    assert found.outputs["condition.retry.1"] == UNCHANGED
    assert found.end.reason == "no-branch"
    schema = {"agent_id": "a", "prompt_template": BEST, "output_schema": {"type": "object"}}
    found = run(pipeline({**schema, "retry_policy": {"max_retries": 2}}))
    assert found.outputs["stages.0.retry.2"] == UNCHANGED
    assert found.end.reason == "invalid-output"


@pytest.mark.cases(
    ("question", "winner"),
    [
        (BEST, "Tents"),
        ("Did sales drop in Q4 2025?", "yes"),
        ("How does our revenue for Q4 2025 compare with the period before it?", "dropped"),
    ],
)
def test_votes_are_those_of_the_rows(question: str, winner: str) -> None:
    for shares in (False, True):
        found = run(swarm(question, strategy="unanimous", confidence_threshold=1, share_votes=shares))
        assert (found.end.status, found.end.output) == ("completed", winner)
        assert found.outputs["votes.2"].endswith(f"VOTE: {winner}\nCONFIDENCE: 1")


@pytest.mark.cases(
    "question", ["Which category shall we promote?", "What was our revenue in 2025?", "top 2 categories"]
)
def test_who_has_no_answer_does_not_vote(question: str) -> None:
    found = run(swarm(question))
    assert (found.end.status, found.end.reason) == ("incomplete", "no-consensus")
    assert found.end.output == "without a vote: 3"


@pytest.mark.cases(
    ("check", "verdict"),
    [
        ("Did sales drop in Q4 2025?", "Yes. Sales dropped: revenue 90.00 against revenue 320.00 (-71.9 %)."),
        ("Did sales rise in Q4 2025?", "No. Sales did not rise but dropped: revenue 90.00 against revenue 320.00"),
        ("Is this polite?", "I have no answer"),
    ],
)
def test_a_validation_is_answered_with_yes_or_no_or_refused(check: str, verdict: str) -> None:
    stage = {"agent_id": "a", "prompt_template": BEST, "validation_prompt": "{{output}}"}
    found = run(pipeline(stage), stages__0=check)
    assert found.outputs["stages.0.validation"].startswith(verdict)
    assert found.end.status == ("completed" if verdict.startswith("Yes") else "failed")


def test_an_output_beside_a_validation_is_not_left_out_of_the_question() -> None:
    stage = {"agent_id": "a", "prompt_template": BEST, "validation_prompt": "Did sales drop in Q4 2025?"}
    found = run(pipeline(stage), stages__0="A text.")
    assert found.prompts["stages.0.validation"].startswith("Did sales drop in Q4 2025?\n\nOutput:\nA text.")
    assert found.outputs["stages.0.validation"].startswith("I have no answer")
