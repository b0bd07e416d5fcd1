"""Messages between agents over HTTP; every answer is held against the OpenAPI document."""

import pytest
from flask import Flask
from flask.testing import FlaskClient

from loom_worker.core.values.api_keys import ALL_SCOPES, KeyHolder, KeyScope, NewKey
from loom_worker.core.values.cutting import FIELD_BYTES
from loom_worker.core.values.sessions import NewSession
from loom_worker.core.values.tenants import LOCAL
from loom_worker.core.values.turns import NewTurn, Turn
from tests.support.agent_messages import dead, sent, wait_for_messages
from tests.support.web_stage import MakeStage, WebStage
from tests.unit.web.described import DescribedClient
from web.app import create_app

ALPHA = KeyHolder("alpha", ALL_SCOPES)
NOW_MS = 1_795_253_400_000


@pytest.fixture
def client(app: Flask) -> FlaskClient:
    app.test_client_class = DescribedClient
    return app.test_client()


def asked(stage: WebStage, session: str = "sender", workspace: str = "default") -> Turn:
    return stage.service.submit(workspace, session, NewTurn("hello"), agent=None)[0]


@pytest.fixture
def sender(stage: WebStage) -> Turn:
    return asked(stage)


def test_a_message_tells_who_says_what_to_whom(client: FlaskClient, stage: WebStage, sender: Turn) -> None:
    message_id = sent(stage.database, sender, "The figures are late.", kind="control", in_reply_to="amsg_1")
    message = client.get(f"/v1/agent-messages/{message_id}").get_json()
    assert {name: message[name] for name in ("id", "object", "from", "to", "kind", "message", "in_reply_to")} == {
        "id": message_id,
        "object": "agent_message",
        "from": "default",
        "to": "helper",
        "kind": "control",
        "message": "The figures are late.",
        "in_reply_to": "amsg_1",
    }
    assert (message["from_session_id"], message["from_turn_id"]) == ("sender", sender.id)
    assert (message["status"], message["attempts"], message["turn_id"], message["ended_at"]) == (
        "queued",
        0,
        None,
        None,
    )


def test_the_list_is_paged_and_filtered_and_has_no_long_texts(
    client: FlaskClient, stage: WebStage, sender: Turn
) -> None:
    ids = [
        dead(stage.database, sender, at_ms=NOW_MS),
        sent(stage.database, sender, "x" * 2 * FIELD_BYTES),
        sent(stage.database, sender, to="writer"),
    ]
    first = client.get("/v1/agent-messages?limit=2").get_json()
    rest = client.get(f"/v1/agent-messages?limit=2&after={first['next']}").get_json()
    assert [each["id"] for each in (*first["data"], *rest["data"])] == ids[::-1]
    assert (first["has_more"], rest["has_more"]) == (True, False)
    assert [each.get("truncated", False) for each in first["data"]] == [False, True]
    for query, shown in {"agent=helper": ids[1::-1], "status=dead": ids[:1], "agent=writer&status=dead": []}.items():
        page = client.get(f"/v1/agent-messages?{query}").get_json()
        assert [each["id"] for each in page["data"]] == shown, query


def test_an_agent_of_a_workflow_can_be_asked_for_by_its_whole_name(client: FlaskClient) -> None:
    name = f"{'w' * 64}:{'a' * 128}"
    assert client.get(f"/v1/agent-messages?agent={name}").get_json()["data"] == []


def test_a_dead_message_is_queued_again_once(client: FlaskClient, stage: WebStage, sender: Turn) -> None:
    message_id = dead(stage.database, sender, at_ms=NOW_MS)
    path = f"/v1/agent-messages/{message_id}"
    assert client.get(path).get_json()["reason"] == "expired"
    answer = client.post(f"{path}/replay")
    assert (answer.status_code, answer.get_json()) == (200, client.get(path).get_json())
    assert (answer.get_json()["status"], answer.get_json()["reason"]) == ("queued", None)
    again = client.post(f"{path}/replay", json={})
    assert (again.status_code, again.get_json()["type"]) == (409, "/problems/not-replayable")
    [row] = client.get("/v1/audit?kind=message.replayed").get_json()["data"]
    assert (row["subject"], row["session_id"], row["turn_id"]) == (message_id, "sender", sender.id)
    assert row["actor"] == LOCAL.key_id


def test_a_turn_that_waits_for_messages_goes_on_at_once(client: FlaskClient, stage: WebStage, sender: Turn) -> None:
    message_id = dead(stage.database, sender, to="default", at_ms=NOW_MS)
    lane = asked(stage, "reader").lane
    lease = stage.lanes.take(lane, "token")
    assert lease is not None
    wait_for_messages(stage.database, lane, at_ms=NOW_MS)
    stage.lanes.park(lease, wait_ms=60_000)
    stage.book.woken.clear()
    assert client.post(f"/v1/agent-messages/{message_id}/replay").status_code == 200
    assert stage.book.woken == [lane]


def test_a_replay_takes_no_body_that_says_something(client: FlaskClient, stage: WebStage, sender: Turn) -> None:
    path = f"/v1/agent-messages/{dead(stage.database, sender, at_ms=NOW_MS)}"
    assert client.post(f"{path}/replay", json={"attempts": 9}).status_code == 422
    assert client.get(path).get_json()["status"] == "dead"


@pytest.mark.parametrize(("scope", "looks", "replays"), [("read", 200, 403), ("chat", 200, 403), ("admin", 200, 200)])
def test_only_an_administrator_replays(make_stage: MakeStage, scope: KeyScope, looks: int, replays: int) -> None:
    stage = make_stage()
    message_id = dead(stage.database, asked(stage, workspace="alpha"), at_ms=NOW_MS)
    headers = {"Authorization": f"Bearer {stage.service.keys.create(ALPHA, NewKey('a key', (scope,)))[1]}"}
    client = create_app(stage.service).test_client()
    assert client.get("/v1/agent-messages", headers=headers).status_code == looks
    answer = client.post(f"/v1/agent-messages/{message_id}/replay", headers=headers)
    assert answer.status_code == replays


def test_a_key_of_a_user_sees_the_messages_of_this_user_s_sessions_alone(client: FlaskClient, stage: WebStage) -> None:
    service = stage.service
    ids = {}
    for user in ("maria", "john", None):
        service.create_session("alpha", NewSession(id=f"of-{user}", user=user))
        ids[user] = sent(stage.database, asked(stage, f"of-{user}", "alpha"))
    secret = service.keys.create(KeyHolder("alpha", ALL_SCOPES, "maria"), NewKey("hers", ("read",)))[1]
    page = client.get("/v1/agent-messages", headers={"Authorization": f"Bearer {secret}"}).get_json()
    assert [(each["id"], each["user"]) for each in page["data"]] == [(ids["maria"], "maria")]
