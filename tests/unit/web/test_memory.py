from typing import Any

import pytest
from flask.testing import FlaskClient

from loom_worker.core.values.memory import Snapshot
from tests.support.memory_recall import BUDGET_TOKENS, RECALL_TOKENS
from tests.support.memory_service import MemoryService
from tests.support.web_stage import Submit, settings
from web.app import create_app

LAYERS = ["tools", "rom", "kernel", "l2", "l1", "recalled", "patterns"]


@pytest.fixture
def said(client: FlaskClient, submit: Submit, memory: MemoryService) -> list[str]:
    """The ids of all messages of session s1; each takes 3 tokens."""
    for number in range(20):
        memory.finish(submit("s1", input=f"q{number}")["id"], f"a{number}")
    return [item["id"] for item in client.get("/v1/sessions/s1/messages").get_json()["data"]]


def test_the_context_shows_every_layer_in_the_order_of_a_request(client: FlaskClient, said: list[str]) -> None:
    context = client.get("/v1/sessions/s1/context").get_json()
    assert list(context["layers"]) == LAYERS
    assert context["layers"]["l1"] == {"tokens": 120, "share": 0.12, "messages": 40}
    assert (context["object"], context["input_budget_tokens"]) == ("context", BUDGET_TOKENS)
    assert context["used_tokens"] == sum(layer["tokens"] for layer in context["layers"].values())


def test_recalled_messages_stand_in_the_context_until_they_are_cleared(client: FlaskClient, said: list[str]) -> None:
    first = client.post("/v1/sessions/s1/recalled", json={"message_ids": [said[3], said[0], said[3]]})
    assert (first.status_code, first.get_json()) == (200, {"recalled_tokens": 6})
    assert client.post("/v1/sessions/s1/recalled", json={"message_ids": said[:3]}).get_json() == {"recalled_tokens": 12}
    recalled = client.get("/v1/sessions/s1/context").get_json()["layers"]["recalled"]
    assert (recalled["tokens"], recalled["messages"]) == (12, 4)
    cleared = client.delete("/v1/sessions/s1/recalled")
    assert (cleared.status_code, cleared.get_json()) == (200, {"recalled_tokens": 0})
    assert client.get("/v1/sessions/s1/context").get_json()["layers"]["recalled"]["messages"] == 0


def test_recalling_too_much_is_refused_and_changes_nothing(client: FlaskClient, said: list[str]) -> None:
    answer = client.post("/v1/sessions/s1/recalled", json={"message_ids": said})
    assert (answer.status_code, answer.get_json()["type"]) == (422, "/problems/recall-budget-exceeded")
    assert str(RECALL_TOKENS) in answer.get_json()["detail"]
    assert client.get("/v1/sessions/s1/context").get_json()["layers"]["recalled"]["tokens"] == 0


def test_messages_that_are_not_the_sessions_are_named(client: FlaskClient, submit: Submit, said: list[str]) -> None:
    submit("s2")
    for session, ids in (("s1", [said[0], "msg_none"]), ("s2", ["mine", said[0]])):
        answer = client.post(f"/v1/sessions/{session}/recalled", json={"message_ids": ids})
        assert answer.status_code == 422
        assert answer.get_json()["errors"][-1] == {
            "pointer": "/message_ids/1",
            "detail": f"the session has no message {ids[1]}",
        }


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/message_ids"),
        ({"message_ids": []}, "/message_ids"),
        ({"message_ids": "msg_1"}, "/message_ids"),
        ({"message_ids": ["msg_1"] * 201}, "/message_ids"),
        ({"message_ids": ["msg 1"]}, "/message_ids/0"),
        ({"message_ids": [1]}, "/message_ids/0"),
        ({"message_ids": ["msg_1"], "all": True}, "/all"),
    ],
)
def test_a_wish_to_recall_that_names_no_messages_is_invalid(
    client: FlaskClient, submit: Submit, body: dict[str, Any], pointer: str
) -> None:
    submit("s1")
    answer = client.post("/v1/sessions/s1/recalled", json=body)
    assert (answer.status_code, answer.get_json()["errors"][0]["pointer"]) == (422, pointer)


def test_snapshots_come_in_pages(client: FlaskClient, submit: Submit, memory: MemoryService) -> None:
    submit("s1")
    kept = [Snapshot(f"snap_{n}", "s1", f"summary {n}", 9, "msg_1", None, 1000 * n) for n in (3, 2, 1)]
    memory.memory.kept[memory.session("default", "s1").lane] = kept
    page = client.get("/v1/sessions/s1/snapshots?limit=2").get_json()
    assert page["data"] == [snapshot.as_json() for snapshot in kept[:2]]
    rest = client.get(f"/v1/sessions/s1/snapshots?after={page['next']}").get_json()
    assert ([item["id"] for item in rest["data"]], rest["next"]) == (["snap_1"], None)
    assert client.get("/v1/sessions/s1/snapshots?limit=0").status_code == 400


WAYS = [("GET", "context", None), ("POST", "recalled", {"message_ids": ["msg_1"]})]
WAYS += [("DELETE", "recalled", None), ("GET", "snapshots", None)]


@pytest.mark.cases(("method", "tail", "body"), WAYS)
@pytest.mark.cases("session", ["none", "a%20b"])
def test_the_memory_of_no_session_is_not_found(
    client: FlaskClient, method: str, tail: str, body: Any, session: str
) -> None:
    assert client.open(f"/v1/sessions/{session}/{tail}", method=method, json=body).status_code == 404


@pytest.mark.cases(("method", "tail", "body"), WAYS)
def test_the_memory_of_another_workspace_is_not_found(method: str, tail: str, body: Any) -> None:
    keyed = create_app(MemoryService(settings(api_keys={"key-a": "alpha", "key-b": "beta"}))).test_client()
    keyed.post("/v1/sessions", json={"id": "s"}, headers={"Authorization": "Bearer key-a"})
    answer = keyed.open(f"/v1/sessions/s/{tail}", method=method, json=body, headers={"Authorization": "Bearer key-b"})
    assert answer.status_code == 404
