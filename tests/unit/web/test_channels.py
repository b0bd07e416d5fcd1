"""Who asks, and where the answer is read."""

from typing import Any

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from loom_worker.core.values.api_keys import ALL_SCOPES, KeyHolder, NewKey
from tests.support.web_stage import WebStage

SMS = {"name": "sms", "format": "plain", "max_chars": 160}
PAIRED = {"channel": "sms", "identity": "+1555", "user": "maria"}


def submit(client: FlaskClient, session: str, headers: dict[str, str] | None = None, **more: Any) -> TestResponse:
    return client.post(f"/v1/sessions/{session}/turns", json={"input": "Hi", **more}, headers=headers)


def user_of(client: FlaskClient, session: str) -> object:
    return client.get(f"/v1/sessions/{session}").get_json()["user"]


def pair(client: FlaskClient, **other: str) -> TestResponse:
    return client.post("/v1/pairings", json={**PAIRED, **other})


def test_a_turn_tells_its_channel_again(client: FlaskClient) -> None:
    turn = submit(client, "s1", channel=SMS).get_json()
    assert (turn["channel"], turn["output_parts"]) == (SMS, None)
    assert client.get(f"/v1/turns/{turn['id']}").get_json()["channel"] == SMS
    bare = submit(client, "s1", channel={"name": "web"}).get_json()
    assert bare["channel"] == {"name": "web", "format": "markdown", "max_chars": None}
    assert submit(client, "s1").get_json()["channel"] is None


@pytest.mark.cases(
    ("channel", "pointer"),
    [
        ({"format": "plain"}, "/channel"),
        ({"name": "a b"}, "/channel/name"),
        ({"name": "x", "format": "html"}, "/channel/format"),
        ({"name": "x", "max_chars": 39}, "/channel/max_chars"),
        ({"name": "x", "colour": "red"}, "/channel"),
    ],
)
def test_a_channel_that_nobody_can_mean_is_refused(client: FlaskClient, channel: Any, pointer: str) -> None:
    answer = submit(client, "s1", channel=channel)
    assert answer.status_code == 422
    assert answer.get_json()["errors"][0]["pointer"].startswith(pointer)


def test_a_session_takes_the_user_of_its_first_turn(client: FlaskClient) -> None:
    assert submit(client, "s1", user="maria").status_code == 202
    assert user_of(client, "s1") == "maria"
    client.post("/v1/sessions", json={"id": "s2"})
    assert submit(client, "s2", user="maria").status_code == 202
    assert user_of(client, "s2") == "maria"


def test_a_session_stays_with_its_user(client: FlaskClient) -> None:
    submit(client, "hers", user="maria")
    submit(client, "nobodys")
    for session, whose in (("hers", "another user"), ("nobodys", "no user")):
        answer = submit(client, session, user="john")
        assert answer.status_code == 422
        assert answer.get_json()["type"].endswith("user-mismatch")
        assert answer.get_json()["errors"] == [{"pointer": "/user", "detail": f"the session belongs to {whose}"}]
    assert (user_of(client, "hers"), user_of(client, "nobodys")) == ("maria", None)
    assert submit(client, "hers").status_code == 202


def test_a_paired_identity_is_its_user_in_that_channel_alone(client: FlaskClient) -> None:
    assert pair(client).status_code == 201
    submit(client, "paired", user="+1555", channel=SMS)
    submit(client, "elsewhere", user="+1555", channel={"name": "web"})
    submit(client, "without", user="+1555")
    assert [user_of(client, each) for each in ("paired", "elsewhere", "without")] == ["maria", "+1555", "+1555"]


def test_pairings_are_made_once_listed_and_forgotten(client: FlaskClient) -> None:
    made = pair(client).get_json()
    assert pair(client).get_json() == made
    assert pair(client, user="john").get_json()["type"].endswith("already-paired")
    other = pair(client, identity="+1666").get_json()
    assert client.get("/v1/pairings").get_json()["data"] == [other, made]
    assert client.delete(f"/v1/pairings/{made['id']}").status_code == 204
    assert client.delete(f"/v1/pairings/{made['id']}").status_code == 404
    submit(client, "s1", user="+1555", channel=SMS)
    assert user_of(client, "s1") == "+1555"


def test_a_deleted_user_is_nobody_in_any_channel(client: FlaskClient) -> None:
    pair(client)
    assert client.delete("/v1/users/maria").status_code == 200
    assert client.get("/v1/pairings").get_json()["data"] == []


def test_a_key_of_a_user_asks_for_no_other(client: FlaskClient, stage: WebStage) -> None:
    pair(client)
    new = NewKey("maria's", ("admin",), user="maria")
    own = {"Authorization": f"Bearer {stage.service.keys.create(KeyHolder('default', ALL_SCOPES), new)[1]}"}
    assert submit(client, "s1", own, user="maria").status_code == 202
    assert submit(client, "s2", own, user="+1555", channel=SMS).status_code == 202
    refused = submit(client, "s3", own, user="john")
    assert (refused.status_code, refused.get_json()["type"].rpartition("/")[2]) == (403, "other-user")
    grabbed = client.post("/v1/pairings", json={**PAIRED, "identity": "+1777"}, headers=own)
    assert grabbed.status_code == 403
