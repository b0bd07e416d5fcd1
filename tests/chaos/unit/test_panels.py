"""Requests for verdicts: how they are known, and what ours say."""

from typing import Any

import pytest

from loom_worker.agents import load as agent_files
from loom_worker.core.values.judges import Verdict
from loom_worker.core.values.turns import Claim
from loom_worker.judge import llm
from loom_worker.judge.llm import Case
from loom_worker.llm.anthropic_request import request_body
from loom_worker.turn.judging import concluded
from loom_worker.turn.state import TurnState
from tests.chaos import panels
from tests.chaos.model_script import newest_question, reply_for, script_of, stage_of
from tests.chaos.panels import Look, is_correction, is_judging, look_of, score_of
from tests.chaos.unit.made import Run
from tests.chaos.world import AGENT, SHORT_MEMORY


def asked(
    answer: str, *, rubric: str = "Rubric of second: all of it.", question: str = "T00007 plain"
) -> dict[str, Any]:
    """Loom's own request for a verdict."""
    case = Case("turn_1", question, answer, (("note", "done: T00009-1-0"),))
    request = llm.request(case, rubric, budget_tokens=9_000, count=len, is_given_up=lambda: False)
    return request_body(request, "claude-test")


def test_what_loom_asks_a_judge_is_known_by_its_tool_choice() -> None:
    assert is_judging(asked("T00007.2 says: yes"))
    assert not is_judging({"messages": [], "tool_choice": {"type": "none"}})
    assert not is_judging({"messages": []})


def test_a_look_names_turn_answer_and_judge() -> None:
    found = look_of(asked("T00007.2 says: anew-1 thread", question="T00007 judged=fail"))
    assert found == Look("second", "T00007", 2, 1, "T00007 judged=fail")
    assert found.key == ("T00007", 2, "second")


def test_an_answer_is_known_by_its_last_reply() -> None:
    found = look_of(asked("T00007.1 asks for tools, round 1.\n\nT00007.4 says: anew-2 thread"))
    assert (found.nth, found.anew) == (4, 2)


def test_an_answer_that_is_the_first_was_not_given_anew() -> None:
    assert look_of(asked("T00007.1 says: thread")).anew == 0


@pytest.mark.parametrize(
    ("anew", "words", "score"),
    [
        (0, (), 0.9),
        (0, ("fail", "pass"), 0.2),
        (1, ("fail", "pass"), 0.9),
        (4, ("pass", "fail"), 0.2),
        (0, ("mute",), None),
    ],
)
def test_the_question_decides_what_becomes_of_each_answer(
    anew: int, words: tuple[str, ...], score: float | None
) -> None:
    assert score_of(Look("first", "T00007", 1, anew, ""), words) == score


def test_the_message_that_has_an_answer_given_anew_is_no_question(run: Run) -> None:
    folder = run.settings.home / "agents"
    folder.mkdir()
    (folder / "judged.yaml").write_text(AGENT.replace("NAME", panels.JUDGED) + SHORT_MEMORY + panels.AGENT)
    panel = agent_files.load(folder).agents[panels.JUDGED].judges
    assert panel is not None
    assert (len(panel.members), panel.threshold, panel.max_answers) == (
        *(panels.MEMBERS, panels.THRESHOLD),
        panels.MOST_ANSWERS,
    )
    claim = run.accepted("T00011 words=2 judged=fail,pass", session="s9")
    assert isinstance(claim, Claim)
    work = run.asked(TurnState.begin(claim).matched("", "", ()))
    answer = work.replies[-1]
    verdicts = [Verdict(answer.n, n, member.name, member.type, score=0.2) for n, member in enumerate(panel.members)]
    found = concluded(work.asked_judges(verdicts), answer, panel, may_correct=True)
    assert is_correction(found.correction)
    body = {
        "model": "claude-test",
        "max_tokens": 99,
        "messages": [
            {"role": "user", "content": "T00011 words=2"},
            {"role": "assistant", "content": "T00011.1 says: thread over"},
            {"role": "user", "content": found.correction},
        ],
    }
    assert newest_question(body) == "T00011 words=2"
    assert stage_of(body) == 1
    assert reply_for(script_of("T00011 words=2"), 2, body).text == "T00011.2 says: anew-1 thread over"
