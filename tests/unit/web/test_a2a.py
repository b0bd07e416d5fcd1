"""The Agent2Agent protocol over HTTP: what is refused, whose tasks are seen, and the answers' form."""

import json
from dataclasses import replace
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from loom_worker.core.values.api_keys import ALL_SCOPES, KeyHolder, NewKey
from loom_worker.core.values.turns import Call
from tests.support.played_worker import PlayedWorker
from tests.support.web_stage import AGENT, MakeStage, WebStage
from tests.unit.web.described import DescribedClient
from web.app import create_app

Json = dict[str, Any]
PAY = Call("toolu_1", "pay", {"amount": 70}, 0, 1, approval="waiting", approve_by_ms=1_795_253_400_000)


@pytest.fixture
def client(app: Flask) -> FlaskClient:
    """Each of its answers is as the OpenAPI document says."""
    app.test_client_class = DescribedClient
    return app.test_client()


def post(client: FlaskClient, method: str, params: Json, agent: str = "default", **options: Any) -> TestResponse:
    body = {"jsonrpc": "2.0", "id": "r-1", "method": method, "params": params}
    return client.post(f"/a2a/{agent}", json=body, **options)


def result(answer: TestResponse) -> Any:
    body = answer.get_json()
    assert (answer.status_code, body["jsonrpc"], body["id"], "error" in body) == (200, "2.0", "r-1", False), body
    return body["result"]


def code(answer: TestResponse) -> int:
    assert answer.status_code == 200, answer.text
    return int(answer.get_json()["error"]["code"])


def message(text: str = "hello", message_id: str = "m-1", **fields: Any) -> Json:
    sent = {"messageId": message_id, "role": "ROLE_USER", "parts": [{"text": text}], **fields}
    return {"message": sent, "configuration": {"returnImmediately": True}}


def send(client: FlaskClient, *args: Any, **fields: Any) -> Json:
    task: Json = result(post(client, "SendMessage", message(*args, **fields)))["task"]
    return task


def streamed(answer: TestResponse) -> list[Json]:
    assert answer.mimetype == "text/event-stream"
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
    return [json.loads(line)["result"] for line in lines]


def test_a_message_is_a_turn_of_its_context(client: FlaskClient, worker: PlayedWorker) -> None:
    task = send(client, contextId="ctx", metadata={"k": 1})
    assert task["status"]["state"] == "TASK_STATE_SUBMITTED"
    turn = client.get(f"/v1/turns/{task['id']}").get_json()
    assert (turn["session_id"], turn["input"], turn["metadata"]["k"]) == ("ctx", "hello", 1)
    worker.finish(task["id"], "42")
    done = result(post(client, "GetTask", {"id": task["id"], "historyLength": 0}))
    assert (done["status"]["state"], done["artifacts"][0]["parts"]) == ("TASK_STATE_COMPLETED", [{"text": "42"}])
    assert "history" not in done


def test_an_ended_task_streams_its_changes(client: FlaskClient, worker: PlayedWorker) -> None:
    task = send(client)
    worker.start(task["id"])
    worker.say(task["id"], "4")
    worker.say(task["id"], "2")
    worker.finish(task["id"], "42")
    first, *rest = streamed(post(client, "SendStreamingMessage", message()))
    assert first["task"]["id"] == task["id"]
    texts = [each["artifactUpdate"]["artifact"]["parts"][0]["text"] for each in rest if "artifactUpdate" in each]
    assert "".join(texts) == "42"
    assert rest[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert code(post(client, "SubscribeToTask", {"id": task["id"]})) == -32004


def test_a_stream_ends_where_a_person_is_asked(client: FlaskClient, stage: WebStage) -> None:
    task = send(client)
    stage.worker.start(task["id"])
    stage.events.append(task["id"], [("approval.required", PAY.as_json())], least=0)
    last = streamed(post(client, "SubscribeToTask", {"id": task["id"]}))[-1]
    assert last["statusUpdate"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"


def test_the_same_message_is_the_same_task_and_another_one_with_its_id_is_refused(client: FlaskClient) -> None:
    assert send(client)["id"] == send(client)["id"]
    assert code(post(client, "SendMessage", message("another"))) == -32602


@pytest.mark.parametrize("text", ["approve", "deny"])
def test_a_question_is_answered_by_a_message_to_its_task(client: FlaskClient, stage: WebStage, text: str) -> None:
    task = send(client)
    stage.worker.ask_person(task["id"], PAY)
    asked = result(post(client, "GetTask", {"id": task["id"]}))
    assert asked["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    answered = send(client, text, "m-2", taskId=task["id"], contextId=task["contextId"])
    assert answered["status"]["state"] == "TASK_STATE_WORKING"
    again = send(client, text, "m-2", taskId=task["id"])
    assert again == answered
    (call,) = client.get(f"/v1/turns/{task['id']}").get_json()["tool_calls"]
    assert call["approval"] == {"approve": "approved", "deny": "rejected"}[text]


def test_of_several_calls_one_must_be_named(client: FlaskClient, stage: WebStage) -> None:
    task = send(client)
    stage.worker.ask_person(task["id"], PAY, replace(PAY, id="toolu_2", position=1))
    answer = post(client, "SendMessage", message("approve", "m-2", taskId=task["id"]))
    assert code(answer) == -32602
    assert "toolu_1, toolu_2" in answer.get_json()["error"]["message"]
    named = message("approve", "m-3", taskId=task["id"])
    named["message"]["parts"] = [{"data": {"decision": "approve", "tool_call_id": "toolu_2"}}]
    for _ in range(2):  # the same decision again changes nothing
        assert result(post(client, "SendMessage", named))["task"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    named["message"]["parts"] = [{"data": {"decision": "deny", "tool_call_id": "toolu_2"}}]
    assert code(post(client, "SendMessage", named)) == -32004


def test_a_task_that_asks_nothing_takes_no_message(client: FlaskClient, worker: PlayedWorker) -> None:
    task = send(client)
    assert code(post(client, "SendMessage", message("approve", "m-2", taskId=task["id"]))) == -32004
    worker.finish(task["id"])
    assert code(post(client, "SendMessage", message("more", "m-3", taskId=task["id"]))) == -32004
    assert code(post(client, "SendMessage", message("x", "m-4", taskId=task["id"], contextId="other"))) == -32602
    assert code(post(client, "SendMessage", message("more", "m-5", taskId="turn_none"))) == -32001


def test_a_task_is_cancelled_once(client: FlaskClient) -> None:
    task = send(client)
    assert result(post(client, "CancelTask", {"id": task["id"]}))["status"]["state"] == "TASK_STATE_CANCELED"
    assert code(post(client, "CancelTask", {"id": task["id"]})) == -32002


def test_push_notifications_are_set_shown_and_taken_away(client: FlaskClient, stage: WebStage) -> None:
    task = send(client)
    ids = {"taskId": task["id"], "id": "mine"}
    config = {**ids, "url": "https://hooks.example/x", "token": "t"}
    assert result(post(client, "CreateTaskPushNotificationConfig", config)) == config
    assert result(post(client, "CreateTaskPushNotificationConfig", {**config, "token": "u"}))["token"] == "u"
    assert code(post(client, "CreateTaskPushNotificationConfig", {**config, "id": "another"})) == -32004
    assert result(post(client, "GetTaskPushNotificationConfig", ids))["url"] == config["url"]
    assert code(post(client, "GetTaskPushNotificationConfig", {**ids, "id": "another"})) == -32001
    listed = result(post(client, "ListTaskPushNotificationConfigs", {"taskId": task["id"]}))
    assert [each["id"] for each in listed["configs"]] == ["mine"]
    assert result(post(client, "DeleteTaskPushNotificationConfig", ids)) == {}
    assert result(post(client, "ListTaskPushNotificationConfigs", {"taskId": task["id"]})) == {"configs": []}
    old = result(post(client, "tasks/pushNotificationConfig/list", {"id": task["id"]}))
    assert old == []


def test_a_push_notification_to_a_private_address_is_refused(client: FlaskClient, stage: WebStage) -> None:
    sent = message()
    sent["configuration"]["taskPushNotificationConfig"] = {"url": "http://127.0.0.1:9/"}
    assert code(post(client, "SendMessage", sent)) == -32602
    assert stage.count() == 0


@pytest.mark.cases(
    ("body", "wanted"),
    [
        (b"{", -32700),
        (b'{"a": NaN}', -32700),
        (b"[]", -32600),
        (b"{}", -32600),
        (b'{"jsonrpc": "2.0", "id": 1}', -32600),
        (b'{"jsonrpc": "2.0", "id": {}, "method": "GetTask"}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "Nope"}', -32601),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": []}', -32602),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "GetTask"}', -32602),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "a/b"}}', -32001),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "ListTasks"}', -32004),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "GetExtendedAgentCard"}', -32007),
    ],
)
def test_what_is_no_call_has_the_code_of_json_rpc(client: FlaskClient, body: bytes, wanted: int) -> None:
    assert code(client.post("/a2a/default", data=body, content_type="application/json")) == wanted


@pytest.mark.parametrize(("version", "wanted"), [("1.0", -32001), ("0.3.0", -32001), ("", -32001), ("2.0", -32009)])
def test_other_versions_are_refused(client: FlaskClient, version: str, wanted: int) -> None:
    assert code(post(client, "GetTask", {"id": "t"}, headers={"A2A-Version": version})) == wanted


def test_what_http_has_a_status_for_keeps_it(client: FlaskClient) -> None:
    assert client.post("/a2a/default", data=b"{}").status_code == 415
    assert post(client, "GetTask", {"id": "t"}, headers={"Origin": "https://evil.example"}).status_code == 403


def test_every_agent_has_a_card_and_tasks_of_its_own(make_stage: MakeStage) -> None:
    stage = make_stage(agents=(AGENT, replace(AGENT, name="other", description="Another")))
    client = create_app(stage.service).test_client()
    assert client.get("/.well-known/agent-card.json").get_json()["name"] == "default"
    card = client.get("/a2a/other/.well-known/agent-card.json").get_json()
    assert (card["name"], card["description"], card["url"]) == ("other", "Another", "http://localhost/a2a/other")
    assert client.get("/a2a/nobody/.well-known/agent-card.json").status_code == 404
    task = send(client, contextId="ctx")
    assert code(post(client, "GetTask", {"id": task["id"]}, "other")) == -32001
    assert code(post(client, "SendMessage", message("x", "m-2", contextId="ctx"), "other")) == -32602
    assert code(post(client, "SendMessage", message("x", "m-3"), "nobody")) == -32001


def test_keys_decide_whose_tasks_are_seen(client: FlaskClient, stage: WebStage) -> None:
    holder = KeyHolder("default", ALL_SCOPES)
    keys = {
        name: {"Authorization": f"Bearer {stage.service.keys.create(holder, NewKey(name, (scope,), user=user))[1]}"}
        for name, scope, user in (("chat", "chat", None), ("read", "read", None), ("maria", "chat", "maria"))
    }
    task = result(post(client, "SendMessage", message(), headers=keys["chat"]))["task"]
    assert post(client, "GetTask", {"id": task["id"]}).status_code == 401
    assert post(client, "GetTask", {"id": task["id"]}, headers=keys["read"]).status_code == 403
    assert code(post(client, "GetTask", {"id": task["id"]}, headers=keys["maria"])) == -32001
    assert result(post(client, "GetTask", {"id": task["id"]}, headers=keys["chat"]))["id"] == task["id"]
    card = client.get("/.well-known/agent-card.json").get_json()
    assert card["security"] == [{"apiKey": []}]


def test_version_0_3_has_its_own_form(client: FlaskClient, worker: PlayedWorker) -> None:
    sent = {"message": {"messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "hello"}]}}
    task = result(post(client, "message/send", {**sent, "configuration": {"blocking": False}}))
    assert (task["kind"], task["status"]["state"]) == ("task", "submitted")
    worker.finish(task["id"], "42")
    first, *_, last = streamed(post(client, "message/stream", sent))
    assert (first["kind"], last["kind"], last["final"], last["status"]["state"]) == (
        "task",
        "status-update",
        True,
        "completed",
    )
