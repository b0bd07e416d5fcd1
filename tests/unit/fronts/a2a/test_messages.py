"""What clients send with a message."""

from typing import Any

import pytest

from loom_worker.core.values.webhooks import Webhook
from loom_worker.fronts.a2a.messages import SentMessage
from loom_worker.fronts.a2a.rpc import CONTENT_TYPE_NOT_SUPPORTED, INVALID_PARAMS, RpcError
from loom_worker.fronts.a2a.version_03 import send_params


def params(*parts: Any, configuration: Any = None, **message: Any) -> dict[str, Any]:
    sent = {"messageId": "m-1", "role": "ROLE_USER", "parts": list(parts or [{"text": "hello"}]), **message}
    return {"message": sent, "configuration": configuration}


def sent(*parts: Any, **fields: Any) -> SentMessage:
    return SentMessage.of(params(*parts, **fields), "1.0")


def test_texts_and_data_are_the_turn_s_text() -> None:
    message = sent({"text": "Look:"}, {"data": {"a": 1}}, {"data": [1, "é"]})
    assert message.text == 'Look:\n\n{"a": 1}\n\n[1, "é"]'
    assert message.data == ({"a": 1},)
    assert (message.waits, message.history_length, message.webhook) == (True, None, None)


def test_a_message_of_0_3_is_read_as_one_of_1_0() -> None:
    push = {"url": "https://h.example", "authentication": {"schemes": ["Bearer", "Basic"], "credentials": "c"}}
    given = {
        "message": {
            "messageId": "m-1",
            "role": "user",
            "kind": "message",
            "parts": [{"kind": "text", "text": "Look:"}, {"kind": "data", "data": {"a": 1}}],
        },
        "configuration": {"blocking": False, "historyLength": 2, "pushNotificationConfig": push},
    }
    message = SentMessage.of(send_params(given), "0.3")
    assert (message.text, message.waits, message.history_length) == ('Look:\n\n{"a": 1}', False, 2)
    assert message.webhook == Webhook("https://h.example", format="a2a-0.3", headers={"Authorization": "Bearer c"})


def test_metadata_of_request_and_message_are_the_turn_s() -> None:
    given = {**params(metadata={"b": 2}, referenceTaskIds=["turn_0"]), "metadata": {"a": 1, "b": 1}}
    assert SentMessage.of(given, "1.0").metadata == {
        "a": 1,
        "b": 2,
        "a2a": {"message_id": "m-1", "reference_task_ids": ["turn_0"]},
    }


@pytest.mark.cases(
    "given",
    [
        {},
        {"message": "x"},
        params({}),
        params({"text": "a", "data": 1}),
        params({"text": 3}),
        params({"text": " \u200b "}),
        params("text"),
        params(messageId=""),
        params(messageId="m" * 257),
        params(messageId="a\nb"),
        params(role="ROLE_AGENT"),
        params(contextId="a b"),
        params(contextId=".."),
        params(contextId=7),
        params(taskId=["t"]),
        params(metadata=[]),
        params(metadata={"x": "y" * 20_000}),
        params(referenceTaskIds="t"),
        params(configuration=[]),
        params(configuration={"historyLength": -1}),
        params(configuration={"historyLength": True}),
        params(configuration={"taskPushNotificationConfig": {"token": "t"}}),
        params(configuration={"taskPushNotificationConfig": {"url": "https://h.example", "token": "a\r\nb: c"}}),
        params(
            configuration={
                "taskPushNotificationConfig": {"url": "https://h.example", "authentication": {"scheme": "Be arer"}}
            }
        ),
    ],
)
def test_what_is_wrong_is_an_error_of_the_parameters(given: dict[str, Any]) -> None:
    with pytest.raises(RpcError) as raised:
        SentMessage.of(given, "1.0")
    assert raised.value.code == INVALID_PARAMS


@pytest.mark.parametrize(
    "given",
    [
        params({"raw": "AAAA"}),
        params({"text": "a"}, {"url": "https://files.example/x"}),
        params(configuration={"acceptedOutputModes": ["image/png"]}),
        send_params({"message": {"messageId": "m", "parts": [{"kind": "file", "file": {"bytes": "AAAA"}}]}}),
    ],
)
def test_files_and_other_answers_than_text_are_not_supported(given: dict[str, Any]) -> None:
    with pytest.raises(RpcError) as raised:
        SentMessage.of(given, "1.0")
    assert raised.value.code == CONTENT_TYPE_NOT_SUPPORTED


def test_the_same_message_to_the_same_agent_has_the_same_key_and_context() -> None:
    one, other = sent(), sent({"text": "another"})
    assert one.key("a") == other.key("a") != one.key("b")
    assert one.new_context("a") == other.new_context("a") != one.new_context("b")
    assert len(one.key("a")) <= 255


@pytest.mark.parametrize(
    ("part", "verdict", "call_id"),
    [
        ({"text": " Approve. "}, "approve", None),
        ({"text": "deny"}, "reject", None),
        ({"text": "REJECT!"}, "reject", None),
        ({"data": {"decision": "approve", "tool_call_id": "t1"}}, "approve", "t1"),
        ({"data": {"decision": "deny", "reason": "too much"}}, "reject", None),
        ({"data": {"decision": "edit", "arguments": {"amount": 1}}}, "edit", None),
    ],
)
def test_a_message_can_be_a_decision(part: Any, verdict: str, call_id: str | None) -> None:
    decision, named = sent(part).decision()
    assert (decision.verdict, named) == (verdict, call_id)


@pytest.mark.parametrize(
    "part",
    [
        {"text": "maybe"},
        {"text": "approve everything"},
        {"data": {"decision": "perhaps"}},
        {"data": {"decision": "edit"}},
        {"data": {"decision": "approve", "arguments": {}}},
        {"data": {"decision": "approve", "tool_call_id": 7}},
        {"data": {"tool_call_id": "t1"}},
    ],
)
def test_what_is_no_decision_is_told_how_to_decide(part: Any) -> None:
    with pytest.raises(RpcError, match="approve or deny") as raised:
        sent(part).decision()
    assert raised.value.code == INVALID_PARAMS
