from typing import Any

import pytest
from flask.testing import FlaskClient

from loom_worker.core.text import fence
from loom_worker.memory.recalled import RECALLED_SHARE, recalled_tokens
from tests.support.web_stage import BUDGET_TOKENS, Submit, WebStage

LAYERS = ["tools", "rom", "kernel", "l2", "l1", "recalled", "patterns"]


@pytest.fixture
def said(client: FlaskClient, submit: Submit, stage: WebStage) -> list[str]:
    """The ids of all messages of session s1; all of them together are too many to be recalled."""
    for number in range(20):
        stage.worker.finish(submit("s1", input=f"q{number} {'word ' * 80}")["id"], f"a{number}")
    return [item["id"] for item in client.get("/v1/sessions/s1/messages").get_json()["data"]]


def test_the_context_shows_every_layer_in_the_order_of_a_request(client: FlaskClient, said: list[str]) -> None:
    context = client.get("/v1/sessions/s1/context").get_json()
    assert list(context["layers"]) == LAYERS
    l1 = context["layers"]["l1"]
    assert l1["tokens"] > 20 * 80 * len("word ") // 8
    assert (l1["share"], l1["messages"]) == (round(l1["tokens"] / BUDGET_TOKENS, 4), 40)
    assert (context["object"], context["input_budget_tokens"]) == ("context", BUDGET_TOKENS)
    assert context["used_tokens"] == sum(layer["tokens"] for layer in context["layers"].values())


def tokens_of(stage: WebStage, *message_ids: str) -> int:
    """What these messages take once they are recalled."""
    found = [stage.service.messages.get("default", "s1", message_id) for message_id in message_ids]
    return recalled_tokens(found, lambda text: (len(text) + 3) // 4, fence)


def test_recalled_messages_stand_in_the_context_until_they_are_cleared(
    client: FlaskClient, stage: WebStage, said: list[str]
) -> None:
    two, four = tokens_of(stage, said[0], said[3]), tokens_of(stage, *said[:4])
    first = client.post("/v1/sessions/s1/recalled", json={"message_ids": [said[3], said[0], said[3]]})
    assert (first.status_code, first.get_json()) == (200, {"recalled_tokens": two})
    second = client.post("/v1/sessions/s1/recalled", json={"message_ids": said[:3]})
    assert second.get_json() == {"recalled_tokens": four}
    recalled = client.get("/v1/sessions/s1/context").get_json()["layers"]["recalled"]
    assert (0 < recalled["tokens"] <= four, recalled["messages"]) == (True, 4)
    cleared = client.delete("/v1/sessions/s1/recalled")
    assert (cleared.status_code, cleared.get_json()) == (200, {"recalled_tokens": 0})
    assert client.get("/v1/sessions/s1/context").get_json()["layers"]["recalled"]["messages"] == 0


def test_recalling_too_much_is_refused_and_changes_nothing(client: FlaskClient, said: list[str]) -> None:
    answer = client.post("/v1/sessions/s1/recalled", json={"message_ids": said})
    assert (answer.status_code, answer.get_json()["type"]) == (422, "/problems/recall-budget-exceeded")
    assert str(int(RECALLED_SHARE * BUDGET_TOKENS)) in answer.get_json()["detail"]
    assert client.get("/v1/sessions/s1/context").get_json()["layers"]["recalled"]["tokens"] == 0


def test_messages_that_are_not_the_sessions_are_named(client: FlaskClient, submit: Submit, said: list[str]) -> None:
    submit("s2")
    for session, ids in (("s1", [said[0], "msg_none"]), ("s2", ["mine", said[0]])):
        answer = client.post(f"/v1/sessions/{session}/recalled", json={"message_ids": ids})
        assert answer.status_code == 422
        assert answer.get_json()["errors"][-1] == {
            "pointer": "/message_ids/1",
            "detail": f"{ids[1]!r} is not a message of this session",
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


def test_snapshots_come_in_pages(client: FlaskClient, submit: Submit, stage: WebStage) -> None:
    submit("s1")
    kept = stage.keep_snapshots("s1", "summary 1", "summary 2", "summary 3")[::-1]
    page = client.get("/v1/sessions/s1/snapshots?limit=2").get_json()
    assert [(item["id"], item["content"]) for item in page["data"]] == [(kept[0], "summary 3"), (kept[1], "summary 2")]
    rest = client.get(f"/v1/sessions/s1/snapshots?after={page['next']}").get_json()
    assert ([item["id"] for item in rest["data"]], rest["next"]) == ([kept[2]], None)
