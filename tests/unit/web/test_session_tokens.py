"""Tokens of a session: what a browser may do with one, and when it ends."""

import pytest
from flask.testing import FlaskClient

from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.json import from_rfc3339
from tests.support.web_stage import WebStage
from tests.unit.web.test_keys import AsKey, Holder, as_key, make_key  # noqa: F401 - fixtures
from web.app import OPERATIONS


@pytest.fixture
def site(as_key: AsKey) -> Holder:  # noqa: F811 - the fixture
    """The application of a site, which makes tokens for its pages."""
    holder = as_key("chat", user="maria")
    for session in ("s1", "s2"):
        holder("POST", f"/v1/sessions/{session}/turns", {"input": "hello"})
    return holder


def token_of(site: Holder, session: str = "s1") -> str:
    made = site("POST", f"/v1/sessions/{session}/token", {"ttl_s": 3600})
    assert made.status_code == 201
    assert 0 < (from_rfc3339(made.get_json()["expires_at"]) or 0) - now_ms() <= 3_600_000
    return str(made.get_json()["token"])


def test_a_token_submits_reads_and_streams_its_session_also_from_the_url(site: Holder, client: FlaskClient) -> None:
    token = token_of(site)
    made = client.post(f"/v1/sessions/s1/turns?access_token={token}", json={"input": "again"})
    assert made.status_code == 202
    turn = made.get_json()["id"]
    for path in (f"/v1/turns/{turn}", f"/v1/turns/{turn}/events", "/v1/sessions/s1/messages", "/v1/sessions/s1/turns"):
        assert client.get(f"{path}?access_token={token}").status_code == 200
        assert Holder(client, token)("GET", path).status_code == 200


def test_a_token_opens_nothing_but_its_session(site: Holder, client: FlaskClient) -> None:
    page, other = Holder(client, token_of(site)), site("GET", "/v1/sessions/s2/turns").get_json()["data"][0]["id"]
    for path in ("/v1/sessions/s2", "/v1/sessions/s2/messages", f"/v1/turns/{other}", f"/v1/turns/{other}/events"):
        assert page("GET", path).status_code == 404
    for session in ("s2", "new"):
        assert page("POST", f"/v1/sessions/{session}/turns", {"input": "x"}).status_code == 404
    assert site("GET", "/v1/sessions/new").status_code == 404
    assert page("GET", "/metrics").status_code in {401, 403}


@pytest.mark.cases("call", sorted(one.call for one in OPERATIONS if one.scope and not one.by_session_token))
def test_no_other_operation_takes_a_token(site: Holder, client: FlaskClient, call: str) -> None:
    method, _, path = call.partition(" ")
    path = path.replace("{session_id}", "s1").replace("{", "").replace("}", "")
    assert Holder(client, token_of(site))(method, path, {}).status_code == 403


def test_a_key_is_not_taken_from_the_url(site: Holder, client: FlaskClient) -> None:
    assert client.get(f"/v1/sessions/s1?access_token={site.secret}").status_code == 401


def test_a_key_of_another_user_makes_no_token(site: Holder, as_key: AsKey) -> None:  # noqa: F811
    assert as_key("chat", user="bob")("POST", "/v1/sessions/s1/token", {}).status_code == 404
    assert as_key("read")("POST", "/v1/sessions/s1/token", {}).status_code == 403


@pytest.mark.parametrize("ttl_s", [0, 3601, "60", None, 1.5])
def test_a_token_lasts_an_hour_at_most(site: Holder, ttl_s: object) -> None:
    refused = site("POST", "/v1/sessions/s1/token", {"ttl_s": ttl_s})
    assert (refused.status_code, refused.get_json()["errors"][0]["pointer"]) == (422, "/ttl_s")


def test_a_token_ends_when_it_is_revoked(site: Holder, client: FlaskClient) -> None:
    pages = [(Holder(client, token_of(site, session)), session) for session in ("s1", "s1", "s2")]
    assert site("DELETE", "/v1/sessions/s1/token").status_code == 204
    statuses = [page("GET", f"/v1/sessions/{session}").status_code for page, session in pages]
    assert statuses == [401, 401, 200]


def test_a_token_ends_with_its_session_and_does_not_open_the_next_one_of_that_id(
    site: Holder, stage: WebStage, client: FlaskClient
) -> None:
    page = Holder(client, token_of(site))
    site("DELETE", "/v1/sessions/s1")
    site("POST", "/v1/sessions", {"id": "s1"})
    stage.service.keys.forget()  # as after five seconds
    assert page("GET", "/v1/sessions/s1").status_code == 401


def test_a_token_ends_with_the_key_that_made_it(site: Holder, as_key: AsKey, client: FlaskClient) -> None:  # noqa: F811
    page, admin = Holder(client, token_of(site)), as_key("admin")
    mine = next(key for key in admin("GET", "/v1/keys").get_json()["data"] if key["user"] == "maria")
    assert admin("DELETE", f"/v1/keys/{mine['id']}").status_code == 204
    assert page("GET", "/v1/sessions/s1").status_code == 401


def test_where_no_key_is_needed_a_token_does_not_bring_the_need(client: FlaskClient) -> None:
    client.post("/v1/sessions", json={"id": "s1"})
    token = client.post("/v1/sessions/s1/token", json={}).get_json()["token"]
    assert client.get("/v1/sessions").status_code == 200
    elsewhere = {"REMOTE_ADDR": "10.0.0.7", "HTTP_HOST": "loom.example"}
    assert client.get(f"/v1/sessions/s1?access_token={token}", environ_overrides=elsewhere).status_code == 200
    assert client.get(f"/v1/sessions?access_token={token}", environ_overrides=elsewhere).status_code == 403


def test_a_turn_sent_at_the_moment_of_the_deletion_does_not_bring_the_session_back(
    site: Holder, client: FlaskClient
) -> None:
    page = Holder(client, token_of(site))
    assert page("GET", "/v1/sessions/s1").status_code == 200  # so that the token is known for five seconds
    site("DELETE", "/v1/sessions/s1")
    assert page("POST", "/v1/sessions/s1/turns", {"input": "x"}).status_code == 404
    assert site("GET", "/v1/sessions/s1").status_code == 404


def test_a_token_made_without_a_key_ends_with_the_first_key(client: FlaskClient, as_key: AsKey) -> None:  # noqa: F811
    client.post("/v1/sessions", json={"id": "s1"})
    page = Holder(client, client.post("/v1/sessions/s1/token", json={}).get_json()["token"])
    assert page("GET", "/v1/sessions/s1").status_code == 200
    as_key("chat")
    assert page("GET", "/v1/sessions/s1").status_code == 401
