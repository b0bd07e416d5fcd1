from typing import Any

import pytest

from loom_worker.cli.http import sendable
from loom_worker.cli.show import printable
from loom_worker.cli.talk import Teller, verdict
from loom_worker.core.values.json import Json
from loom_worker.core.values.notifications import Event


def told(*events: tuple[str, dict[str, Any]]) -> str:
    said: list[str] = []
    teller = Teller(said.append, lambda note: said.append(f"[{note}]\n"))
    for number, (kind, data) in enumerate(events, start=1):
        teller.tell(Event(number, kind, data))
    teller.end()
    return "".join(said)


def delta(text: str) -> tuple[str, dict[str, Any]]:
    return ("output_text.delta", {"text": text})


def test_text_is_written_as_it_comes_and_its_line_is_closed() -> None:
    assert told(("turn.started", {}), delta("Hel"), delta("lo")) == "Hello\n"


def test_a_tool_is_noted_on_a_line_of_its_own() -> None:
    assert (
        told(delta("Let me see"), ("tool_call.started", {"name": "query"}), delta("3"))
        == "Let me see\n[· query …]\n3\n"
    )


def test_a_wait_is_noted_between_answers_and_never_in_the_middle_of_one() -> None:
    wait = (":", {"text": "the model\x1b has been reading for 40 s"})
    assert told(wait, delta("Hel"), wait, delta("lo")) == "[· the model has been reading for 40 s]\nHello\n"


@pytest.mark.cases(
    "judge, remark",
    [
        ({"score": 0.9, "verdicts": [{"name": "facts", "passed": True}], "is_last": True}, "judged 0.9"),
        (
            {"score": 0.25, "verdicts": [{"name": "facts", "passed": False}], "is_last": False},
            "judged 0.25 (not passed by facts), so the model answers again",
        ),
        ({"score": None, "verdicts": [{"name": "a\x1b", "passed": None}]}, "judged by nobody (not passed by a)"),
    ],
)
def test_what_judges_made_of_an_answer_is_noted(judge: Json, remark: str) -> None:
    assert told(delta("42"), ("judge.verdict", judge)) == f"42\n[· {remark}]\n"


@pytest.mark.parametrize("kind", ["turn.retrying", "stream.reset"])
def test_an_attempt_that_is_repeated_takes_back_what_was_said(kind: str) -> None:
    text = told(delta("wro"), (kind, {}), delta("right"))
    assert text.startswith("wro\n[")
    assert "does not count" in text
    assert text.endswith("]\nright\n")


def test_a_model_cannot_move_the_cursor_or_retitle_the_terminal() -> None:
    assert printable("a\x1b]0;owned\x07b\x9b2Jc\rd\te\nf\x7f") == "a]0;ownedb2Jcd\te\nf"


def test_a_completed_turn_needs_no_words_and_any_other_gets_its_reason() -> None:
    assert verdict({"id": "t", "status": "completed"}) == ""
    assert verdict({"id": "t", "status": "cancelled", "reason": None, "error": None}) == "the turn t is cancelled"


def test_what_was_no_utf8_can_be_sent_and_all_else_is_as_it_was() -> None:
    assert sendable("a\udcffb") == "a\ufffdb"
    assert sendable("größer 😀\u202e\n") == "größer 😀\u202e\n"
