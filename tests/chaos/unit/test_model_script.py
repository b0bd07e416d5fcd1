"""What the model says to the stages of runs: by the prompt alone."""

import pytest

from tests.chaos.marks import mark_of, unspoken
from tests.chaos.model_script import agent_of, newest_question, reply_for, script_of

RUN = "run_01m8acfax67przdzsc4wfwefxs"


def body(question: str, agent: str) -> dict[str, object]:
    system = [{"type": "text", "text": f"You are @{agent}.\n\nBe kind."}]
    messages = [{"role": "user", "content": question}]
    return {"model": "claude-test", "max_tokens": 4_000, "system": system, "messages": messages}


def said(question: str, agent: str = "ada", nth: int = 1) -> str:
    asked = body(question, agent)
    script = script_of(newest_question(asked), agent_of(asked))
    return reply_for(script, nth, asked).text


def test_an_agent_of_a_workflow_is_known_by_its_system_text() -> None:
    assert agent_of(body("", "chain:clerk")) == "chain:clerk"
    assert agent_of({"system": "Answer what you are asked."}) == ""


def test_the_directives_are_behind_the_runs_id_on_that_line_alone() -> None:
    question = f"The task was:\n{RUN} words=1\n\nT00001.1 says: words=9"
    assert said(question) == f"{mark_of(question, 'ada')}.1 says: thread"


def test_a_directive_with_a_name_is_for_that_agent() -> None:
    question = f"{RUN} words=1 ada:ends=red bob:ends=blue clerk:words=2"
    assert [said(question, agent).partition("says: ")[2] for agent in ("ada", "bob", "chain:clerk")] == [
        "thread\nred",
        "thread\nblue",
        "thread over",
    ]


@pytest.mark.parametrize(
    ("directives", "text"),
    [
        ("first=2", "2 NAME says: thread"),
        ("ends=VOTE:_dark_blue|CONFIDENCE:_0.8", "NAME says: thread\nVOTE: dark blue\nCONFIDENCE: 0.8"),
        ('ends={"n":1}', 'NAME says: thread\n{"n":1}'),
        ("yesif=ready", "no NAME says: thread"),
        ("again=draft", "NAME says: thread\nRESTART draft: pass-1 after MARK"),
    ],
)
def test_an_answer_begins_and_ends_as_the_prompt_says(directives: str, text: str) -> None:
    question = f"{RUN} words=1 {directives}\nIt is rough."
    mark = mark_of(question, "ada")
    assert said(question, nth=4) == text.replace("NAME", f"{mark}.4").replace("MARK", mark)


def test_a_check_says_yes_to_an_output_with_the_word() -> None:
    assert said(f"{RUN} yesif=ready\nT00001.1 says: thread\nready").startswith("yes T")


def test_work_is_done_again_as_often_as_the_prompt_says() -> None:
    first, second = f"{RUN} again=draft*2\npass-1 after T00001", f"{RUN} again=draft*2\npass-2 after T00001"
    assert "RESTART draft: pass-2 after" in said(first)
    assert "RESTART" not in said(second)


def test_bare_answers_differ_in_signs_alone() -> None:
    question = f"{RUN} bare=blue"
    assert said(question, nth=2) == f"blue {unspoken(mark_of(question, 'ada') + '.2')}"
