"""Answers that must have a form, on a stage of real parts: held against it, given anew once, or the turn fails."""

import json
from dataclasses import replace
from typing import Any

import pytest

from loom_worker.core.errors import ProviderFailed
from loom_worker.core.values.channels import Channel
from loom_worker.core.values.chat import TextDelta, object_schema
from loom_worker.core.values.guardrails import Guardrails
from loom_worker.core.values.judges import Panel, PanelMember
from loom_worker.core.values.turns import Retry, Turn
from loom_worker.store.submit import retry
from tests.support.models import Beat, Killed, says, wants
from tests.support.stage import WORKSPACE, Stage

FORM = {"name": "count", "schema": object_schema("n", n={"type": "integer"}, note={"type": "string"})}
FINE, WRONG = '{"n": 42}', '{"n": "many"}'


def answered(stage: Stage, *scenes: list[Beat], **new: Any) -> Turn:
    return stage.answered(*scenes, **{"response_format": FORM, **new})


def seen(stage: Stage, turn: Turn) -> str:
    """What is left before a reader who follows the turn, by its live log as well as by the one from the database."""
    texts = []
    for log in (stage.live(turn), stage.rebuilt(turn)):
        begun = max((n for n, event in enumerate(log) if event.type == "turn.retrying"), default=0)
        texts.append("".join(event.data["text"] for event in log[begun:] if event.type == "output_text.delta"))
    assert texts[0] == texts[1]
    return texts[0]


@pytest.mark.cases("text", [FINE, f"\n  {FINE}\n", f"```json\n{FINE}\n```", f"```\n{FINE}\n```\n"])
def test_an_answer_of_the_form_is_the_turns_and_is_read(stage: Stage, text: str) -> None:
    turn = answered(stage, says(text))
    assert (turn.status, turn.output_parsed, json.loads(turn.output_text or "")) == ("completed", {"n": 42}, {"n": 42})
    assert "`" not in (turn.output_text or "")
    assert seen(stage, turn) == turn.output_text
    assert stage.live(turn)[-1].data["output_parsed"] == {"n": 42}
    assert [request.shape and request.shape.name for request in stage.model.asked[-1:]] == ["count"]


@pytest.mark.cases(
    ("text", "place"),
    [
        (WRONG, "/n"),
        ('{"n": 1, "more": 1}', "more"),
        ("There are 42.", "JSON"),
        ("", "JSON"),
        ('{"n": NaN}', "JSON"),
        ('{"n": 1, "note": "\\ud800"}', "JSON"),
        (f"Here: {FINE}", "JSON"),
    ],
)
def test_an_answer_without_the_form_is_given_anew_once(stage: Stage, text: str, place: str) -> None:
    turn = answered(stage, says(text), says(FINE))
    assert (turn.status, turn.output_text, turn.output_parsed) == ("completed", FINE, {"n": 42})
    assert seen(stage, turn) == FINE
    first, second = stage.model.asked[-2:]
    assert (first.may_call_tools, second.may_call_tools) == (True, False)
    assert place in second.messages[-1].text
    assert [(chat.role, chat.text) for chat in stage.said()[-2:]] == [("user", "How many?"), ("assistant", FINE)]


def test_an_answer_that_still_lacks_the_form_fails_the_turn_and_is_kept(stage: Stage) -> None:
    long = json.dumps({"n": "many " * 1_000})
    turn = answered(stage, wants(("note", {}), text="I look."), says(WRONG), says(long))
    assert [request.shape is not None for request in stage.model.asked] == [True, True, True]
    assert (turn.status, turn.reason, turn.output_text) == ("failed", "invalid-output", long)
    assert turn.output_parsed is None
    error = turn.error or {}
    assert (error["type"], error["message"].count("/n: "), "is not of type 'integer'" in error["message"]) == (
        *("invalid-output", 1, True),
    )
    assert len(error["message"]) < 360
    assert seen(stage, turn) == long


def test_a_cut_answer_is_incomplete_and_not_held_against_the_form(stage: Stage) -> None:
    turn = answered(stage, says('{"n": 4', stop="max_tokens"))
    assert (turn.status, turn.reason, turn.output_parsed) == ("incomplete", "max_tokens", None)


def test_no_tool_has_the_forms_name(stage: Stage) -> None:
    answered(stage, says(FINE), response_format={**FORM, "name": "note"})
    [request] = stage.model.asked
    assert request.shape is not None
    assert request.shape.name not in {tool.name for tool in request.tools}


@pytest.mark.cases(
    ("own", "parsed"), [(None, {"a": 1}), (FORM, None), ({}, None)], ids=["the agents", "its own", "a text"]
)
def test_the_turns_own_form_comes_before_the_agents(stage: Stage, own: Any, parsed: Any) -> None:
    stage.agent = replace(stage.agent, response_format={"name": "a", "schema": object_schema("a", a={})})
    turn = stage.answered(says('{"a": 1}'), *([says('{"a": 1}')] if own else []), response_format=own)
    assert (turn.status, turn.output_parsed) == ("failed" if own else "completed", parsed)


def test_a_correction_that_cannot_be_asked_for_fails_as_it_would_without_one(stage: Stage) -> None:
    turn = answered(stage, says(WRONG), [ProviderFailed("refused")])
    assert (turn.status, turn.reason, turn.output_text, turn.output_parsed) == ("failed", "provider", WRONG, None)


def test_judges_see_answers_of_the_form_alone_and_what_they_have_given_anew_needs_it_too(stage: Stage) -> None:
    stage.agent = replace(stage.agent, judges=Panel((PanelMember("42", "contains", {"all": ["42"]}),)))
    worker = stage.worker("w1")
    stage.model.scenes = [says(text) for text in ("Many.", '{"n": 7}', "42.", FINE)]
    turn = stage.serve(stage.submit(response_format=FORM), worker)
    while not turn.is_finished:
        stage.give_verdicts(turn, worker)
        turn = stage.serve(turn, worker)
    assert (turn.status, turn.output_parsed, (turn.judge or {})["attempts"]) == ("completed", {"n": 42}, 2)
    assert seen(stage, turn) == FINE


@pytest.mark.parametrize("dies_at", [0, 1, 2])
def test_a_worker_that_dies_between_changes_nothing(stage: Stage, dies_at: int) -> None:
    scenes = [says(WRONG), says(FINE)]
    scenes.insert(min(dies_at, 1), [TextDelta('{"n'), Killed()] if dies_at < 2 else [Killed()])
    stage.model.scenes = scenes
    turn = stage.submit(response_format=FORM)
    stage.die(turn)
    turn = stage.serve(turn, stage.worker("w2"))
    assert (turn.status, turn.output_text, turn.output_parsed) == ("completed", FINE, {"n": 42})
    assert [len(request.messages) for request in stage.model.asked] == ([1, 1, 3] if dies_at == 0 else [1, 3, 3])
    assert seen(stage, turn) == FINE


def test_what_guardrails_take_out_is_told_where_the_form_is_lost_by_it(stage: Stage) -> None:
    stage.agent = replace(stage.agent, guardrails=Guardrails.of({"output": {"card": "redact"}}))
    card = '{"n": 4111111111111111}'
    turn = answered(stage, says(card), says(card))
    assert (turn.reason, "4111" in (turn.output_text or "")) == ("invalid-output", False)
    assert "guardrails" in stage.model.asked[1].messages[-1].text
    turn = answered(stage, says('{"n": 1, "note": "card 4111 1111 1111 1111"}'))
    assert (turn.status, turn.output_parsed) == ("completed", {"n": 1, "note": "card [redacted card]"})


def test_a_channel_gets_the_same_json(stage: Stage) -> None:
    text = '{"n": 42, "note": "*so*  many\\n"}'
    turn = answered(stage, says(text), channel=Channel("sms", "plain", 20))
    assert (turn.output_text, "".join(turn.output_parts or ())) == (text, text)
    assert max(map(len, turn.output_parts or ())) == 20


def test_a_retry_has_the_form_of_the_turn_and_not_that_the_agents_file_had(stage: Stage) -> None:
    stage.agent = replace(stage.agent, response_format=FORM)
    for own in (None, FORM):
        failed = stage.answered(says(WRONG), says(WRONG), response_format=own)
        again, _ = retry(stage.database, stage.settings.limits, (WORKSPACE, failed.id), Retry(), now_ms=stage.now_ms)
        assert again.response_format == own
        stage.model.scenes = [says(FINE)]
        stage.lanes.submit(again.lane, [(again.seq, again.id)])
        assert stage.serve(again, stage.worker("w1")).output_parsed == {"n": 42}


def test_a_list_leaves_the_object_out(stage: Stage) -> None:
    answered(stage, says(FINE))
    [listed] = stage.turns.page(WORKSPACE, {}, limit=5, after=None).items
    assert (listed.output_text, listed.output_parsed) == (FINE, None)


def test_a_schema_that_would_take_for_ever_is_an_answer_without_the_form(stage: Stage) -> None:
    loop = {"type": "object", "properties": {"n": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"$ref": "#/$defs/a"}}}
    turn = answered(stage, says(FINE), says(FINE), response_format={"name": "a", "schema": loop})
    assert (turn.status, turn.reason) == ("failed", "invalid-output")
