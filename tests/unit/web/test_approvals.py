"""A person decides on tool calls over HTTP."""

from typing import Any

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from loom_worker.core.values.calls import Call
from tests.support.web_stage import Submit, WebStage

PAY = Call("toolu_1", "pay", {"amount": 70}, 0, 1, approval="waiting", approve_by_ms=1_795_253_400_000)
LOOK = Call("toolu_2", "look", {}, 1, 1)


@pytest.fixture
def asking(submit: Submit, stage: WebStage) -> str:
    """A turn that waits for a person, for one of its two calls."""
    turn_id = str(submit()["id"])
    stage.worker.ask_person(turn_id, PAY, LOOK)
    return turn_id


def decide(client: FlaskClient, turn_id: str, body: Any, call: str = PAY.id, **options: Any) -> TestResponse:
    return client.post(f"/v1/turns/{turn_id}/approvals/{call}", json=body, **options)


def pay(answer: TestResponse) -> dict[str, Any]:
    """The call that was decided on, as the answer has it."""
    assert answer.status_code == 200, answer.text
    return dict(answer.get_json()["tool_calls"][0])


def test_turns_that_wait_for_a_person_are_listed_with_the_call_and_its_time(client: FlaskClient, asking: str) -> None:
    (turn,) = client.get("/v1/turns?status=requires_action").get_json()["data"]
    assert turn["id"] == asking
    waiting, other = turn["tool_calls"]
    assert (waiting["approval"], waiting["approve_by"]) == ("waiting", "2026-11-21T09:30:00.000Z")
    assert (other["approval"], other["approve_by"]) == (None, None)


def test_an_approved_call_keeps_its_arguments(client: FlaskClient, asking: str) -> None:
    call = pay(decide(client, asking, {"decision": "approve"}))
    assert (call["approval"], call["arguments"], call["status"]) == ("approved", {"amount": 70}, "pending")


def test_an_edited_call_has_the_new_arguments(client: FlaskClient, asking: str) -> None:
    call = pay(decide(client, asking, {"decision": "edit", "arguments": {"amount": 7}}))
    assert (call["approval"], call["arguments"]) == ("edited", {"amount": 7})


@pytest.mark.parametrize(
    ("reason", "content"), [("Ask first.", "Denied by a person: Ask first."), (None, "Denied by a person.")]
)
def test_a_rejected_call_is_denied_with_its_reason(
    client: FlaskClient, asking: str, reason: str | None, content: str
) -> None:
    call = pay(decide(client, asking, {"decision": "reject", "reason": reason}))
    assert (call["approval"], call["status"], call["content"]) == ("rejected", "denied", content)


@pytest.mark.parametrize("first", ["approve", "reject"])
@pytest.mark.parametrize("second", ["approve", "reject"])
def test_a_call_is_decided_on_once(client: FlaskClient, asking: str, first: str, second: str) -> None:
    before = pay(decide(client, asking, {"decision": first}))
    answer = decide(client, asking, {"decision": second})
    assert (answer.status_code, answer.get_json()["type"]) == (409, "/problems/already-decided")
    assert client.get(f"/v1/turns/{asking}").get_json()["tool_calls"][0] == before


def test_a_turn_that_has_ended_is_not_decided_on(client: FlaskClient, stage: WebStage, asking: str) -> None:
    stage.worker.die(asking)
    assert decide(client, asking, {"decision": "approve"}).get_json()["type"] == "/problems/already-decided"


def test_a_call_that_needs_nobody_is_not_waiting(client: FlaskClient, asking: str) -> None:
    answer = decide(client, asking, {"decision": "approve"}, LOOK.id)
    assert (answer.status_code, answer.get_json()["type"]) == (409, "/problems/not-waiting")


@pytest.mark.cases(
    ("body", "pointer"),
    [
        ({}, "/decision"),
        ({"decision": "maybe"}, "/decision"),
        ({"decision": ["approve"]}, "/decision"),
        ({"decision": "edit"}, "/arguments"),
        ({"decision": "edit", "arguments": None}, "/arguments"),
        ({"decision": "edit", "arguments": [1]}, "/arguments"),
        ({"decision": "edit", "arguments": {"price": 7}}, "/arguments"),
        ({"decision": "approve", "arguments": {"amount": 7}}, "/arguments"),
        ({"decision": "reject", "arguments": {}}, "/arguments"),
        ({"decision": "reject", "reason": "x" * 1001}, "/reason"),
        ({"decision": "approve", "who": "me"}, "/who"),
    ],
)
def test_a_decision_that_says_something_else_is_refused_and_decides_nothing(
    client: FlaskClient, asking: str, body: Any, pointer: str
) -> None:
    answer = decide(client, asking, body)
    assert answer.status_code == 422
    assert pointer in {flaw["pointer"] for flaw in answer.get_json()["errors"]}
    assert client.get(f"/v1/turns/{asking}").get_json()["tool_calls"][0]["approval"] == "waiting"


def test_no_body_decides_nothing(client: FlaskClient, asking: str) -> None:
    assert client.post(f"/v1/turns/{asking}/approvals/{PAY.id}").status_code == 415
