"""API keys over HTTP: made, used, replaced and ended, and what each of them allows."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from flask.testing import FlaskClient
from sqlalchemy import update
from werkzeug.test import TestResponse

from loom_worker.core.isolation.home_secrets import home_token
from loom_worker.core.values.api_keys import ALL_SCOPES, SCOPES, KeyHolder, KeyScope, NewKey
from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.json import rfc3339
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.tables import api_keys
from tests.support.web_stage import Live, MakeStage, WebStage
from web.app import OPERATIONS, create_app
from web.operation import Operation

UNKNOWN = "loom_" + "0" * 43
TABLE = [operation for operation in OPERATIONS if operation.scope]


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


@dataclass
class Maker:
    """Makes keys as the service does, and shows their secrets."""

    stage: WebStage

    def __call__(self, *scopes: KeyScope, workspace: str = "default", **fields: Any) -> str:
        holder = KeyHolder(workspace, ALL_SCOPES)
        return self.stage.service.keys.create(holder, NewKey("a key", scopes or ("admin",), **fields))[1]


@pytest.fixture
def make_key(stage: WebStage) -> Maker:
    return Maker(stage)


@dataclass
class Holder:
    """Sends requests with a key."""

    client: FlaskClient
    secret: str

    def __call__(self, method: str, path: str, body: Any = None) -> TestResponse:
        sent = {} if body is None else {"json": body}
        return self.client.open(path, method=method, headers=bearer(self.secret), **sent)


@pytest.fixture
def admin(client: FlaskClient, make_key: Maker) -> Holder:
    return Holder(client, make_key("admin"))


AsKey = Callable[..., Holder]


@pytest.fixture
def as_key(client: FlaskClient, make_key: Maker) -> AsKey:
    return lambda *scopes, **fields: Holder(client, make_key(*scopes, **fields))


def test_a_key_is_made_and_its_secret_shown_this_once(admin: Holder, client: FlaskClient) -> None:
    expires_at = rfc3339(now_ms() + 3_600_000)
    made = admin("POST", "/v1/keys", {"name": "CI", "scopes": ["read"], "user": "maria", "expires_at": expires_at})
    assert made.status_code == 201
    assert made.headers["Cache-Control"] == "no-store"
    key = made.get_json()
    assert key["secret"].startswith(key["prefix"])
    assert (key["object"], key["name"], key["scopes"], key["user"]) == ("key", "CI", ["read"], "maria")
    assert key["expires_at"] == expires_at
    assert client.get("/v1/sessions", headers=bearer(key["secret"])).status_code == 200
    listed = admin("GET", "/v1/keys")
    assert key["secret"] not in listed.text
    del key["secret"]
    assert [{**one, "last_used_at": None} for one in listed.get_json()["data"] if one["name"] == "CI"] == [key]


def test_a_key_may_chat_unless_it_says_otherwise(admin: Holder) -> None:
    assert admin("POST", "/v1/keys", {"name": "CI"}).get_json()["scopes"] == ["chat"]


@pytest.mark.cases(
    ("body", "pointer"),
    [
        ({}, "/name"),
        ({"name": " "}, "/name"),
        ({"name": "x" * 129}, "/name"),
        ({"name": "x", "scopes": []}, "/scopes"),
        ({"name": "x", "scopes": ["root"]}, "/scopes/0"),
        ({"name": "x", "scopes": ["read", "read"]}, "/scopes"),
        ({"name": "x", "user": ""}, "/user"),
        ({"name": "x", "expires_at": "tomorrow"}, "/expires_at"),
        ({"name": "x", "expires_at": 7}, "/expires_at"),
        ({"name": "x", "expires_at": "2001-01-01T00:00:00Z"}, "/expires_at"),
        ({"name": "x", "secret": "mine"}, "/secret"),
    ],
)
def test_what_cannot_be_a_key_is_refused(admin: Holder, body: Any, pointer: str) -> None:
    answer = admin("POST", "/v1/keys", body)
    assert answer.status_code == 422
    assert [flaw["pointer"] for flaw in answer.get_json()["errors"]] == [pointer]


def test_keys_are_listed_in_pages_the_newest_first(admin: Holder) -> None:
    made = [admin("POST", "/v1/keys", {"name": f"k{n}"}).get_json()["id"] for n in range(3)]
    page = admin("GET", "/v1/keys?limit=2").get_json()
    assert [key["id"] for key in page["data"]] == made[:0:-1]
    rest = admin("GET", f"/v1/keys?limit=2&after={page['next']}").get_json()
    assert rest["data"][0]["id"] == made[0]
    assert rest["has_more"] is False
    assert admin("GET", "/v1/keys?after=sess_1").status_code == 422


def test_a_revoked_key_is_told_so_and_stays_in_the_list(admin: Holder, client: FlaskClient) -> None:
    key = admin("POST", "/v1/keys", {"name": "CI"}).get_json()
    client.get("/v1/sessions", headers=bearer(key["secret"]))
    assert admin("DELETE", f"/v1/keys/{key['id']}").status_code == 204
    assert admin("DELETE", f"/v1/keys/{key['id']}").status_code == 204
    refused = client.get("/v1/sessions", headers=bearer(key["secret"]))
    assert refused.status_code == 401
    assert "revoked" in refused.get_json()["detail"]
    assert 'error="invalid_token"' in refused.headers["WWW-Authenticate"]
    [listed] = [one for one in admin("GET", "/v1/keys").get_json()["data"] if one["id"] == key["id"]]
    assert listed["revoked_at"]


def test_an_expired_key_is_told_so(admin: Holder, client: FlaskClient, stage: WebStage) -> None:
    key = admin("POST", "/v1/keys", {"name": "CI", "expires_at": "2999-01-01T00:00:00+01:00"}).get_json()
    with stage.database.write(lock=WHOLE) as tx:
        tx.execute(update(api_keys).where(api_keys.c.id == key["id"]).values(expires_ms=now_ms()))
    refused = client.get("/v1/sessions", headers=bearer(key["secret"]))
    assert refused.status_code == 401
    assert "expired" in refused.get_json()["detail"]


def test_an_unknown_secret_does_not_learn_whether_it_ever_was_a_key(admin: Holder, client: FlaskClient) -> None:
    refused = client.get("/v1/sessions", headers=bearer(UNKNOWN))
    assert refused.status_code == 401
    assert refused.get_json()["detail"] == "this key is not known"


def test_a_rotated_key_gives_way_at_once_or_after_the_grace(admin: Holder, client: FlaskClient) -> None:
    for body, status in ((None, 401), ({}, 401), ({"grace_s": 60}, 200)):
        old = admin("POST", "/v1/keys", {"name": "CI"}).get_json()
        new = admin("POST", f"/v1/keys/{old['id']}/rotate", body)
        assert new.status_code == 200
        assert new.get_json()["rotated_from"] == old["id"]
        assert client.get("/v1/sessions", headers=bearer(new.get_json()["secret"])).status_code == 200
        assert client.get("/v1/sessions", headers=bearer(old["secret"])).status_code == status
    assert admin("POST", f"/v1/keys/{new.get_json()['id']}/rotate", {"grace_s": -1}).status_code == 422


def test_a_key_that_has_ended_is_not_rotated(admin: Holder) -> None:
    key = admin("POST", "/v1/keys", {"name": "CI"}).get_json()
    admin("DELETE", f"/v1/keys/{key['id']}")
    refused = admin("POST", f"/v1/keys/{key['id']}/rotate")
    assert (refused.status_code, refused.get_json()["type"]) == (409, "/problems/key-ended")


def test_the_last_key_cannot_be_revoked_from_elsewhere(admin: Holder, client: FlaskClient) -> None:
    [key] = admin("GET", "/v1/keys").get_json()["data"]
    refused = admin("DELETE", f"/v1/keys/{key['id']}")
    assert (refused.status_code, refused.get_json()["type"]) == (409, "/problems/last-key")
    assert client.get("/v1/sessions").status_code == 401


def test_where_the_environment_has_keys_the_last_stored_one_can_be_revoked(make_stage: MakeStage) -> None:
    stage = make_stage(api_keys={"env": "default"})
    client = create_app(stage.service).test_client()
    key = client.post("/v1/keys", json={"name": "CI"}, headers=bearer("env")).get_json()
    assert client.delete(f"/v1/keys/{key['id']}", headers=bearer("env")).status_code == 204


def test_keys_of_the_environment_have_all_scopes(make_stage: MakeStage) -> None:
    client = create_app(make_stage(api_keys={"env": "alpha"}).service).test_client()
    made = client.post("/v1/keys", json={"name": "x", "scopes": ["admin"]}, headers=bearer("env"))
    assert (made.status_code, made.get_json()["workspace"]) == (201, "alpha")


@pytest.mark.parametrize("headers", [{}, bearer(""), bearer("x"), bearer("\xe9"), {"Authorization": "Basic eDp4"}])
def test_the_first_key_is_refused_to_whoever_cannot_read_the_home(
    client: FlaskClient, stage: WebStage, headers: dict[str, str]
) -> None:
    token = home_token(stage.service.settings.home)
    refused = client.post("/v1/keys", json={"name": "first", "scopes": ["admin"]}, headers=headers)
    assert (refused.status_code, refused.get_json()["type"]) == (403, "/problems/first-key")
    assert str(token.file) in refused.get_json()["detail"]
    assert token.text not in refused.text
    assert client.get("/v1/sessions").status_code == 200


def test_this_machine_needs_no_key_until_there_is_one(client: FlaskClient, stage: WebStage) -> None:
    token, first = bearer(home_token(stage.service.settings.home).text), {"name": "first", "scopes": ["admin"]}
    made = client.post("/v1/keys", json=first, headers=token)
    assert client.post("/v1/keys", json=first, headers=token).status_code == 401
    assert made.status_code == 201
    assert client.get("/v1/sessions").status_code == 401
    assert client.get("/v1/sessions", headers=bearer(made.get_json()["secret"])).status_code == 200


def test_once_there_is_a_key_its_holders_are_served_from_anywhere(client: FlaskClient, make_key: Maker) -> None:
    elsewhere = {"REMOTE_ADDR": "10.0.0.7"}
    assert client.get("/", environ_overrides=elsewhere).status_code == 403
    secret = make_key("read")
    assert client.get("/v1/sessions", headers=bearer(secret), environ_overrides=elsewhere).status_code == 200
    assert client.get("/v1/sessions", environ_overrides=elsewhere).status_code == 401
    assert client.get("/", environ_overrides=elsewhere).status_code == 200


def test_a_revoked_key_is_refused_even_where_no_key_is_needed_any_more(client: FlaskClient, stage: WebStage) -> None:
    keys, holder = stage.service.keys, KeyHolder("default", ALL_SCOPES)
    key, secret = keys.create(holder, NewKey("only", ("admin",)))
    keys.revoke(holder, key.id, may_be_last=True)
    assert client.get("/v1/sessions").status_code == 200
    assert client.get("/v1/sessions", headers=bearer(secret)).status_code == 401
    assert client.get("/v1/sessions", headers=bearer("another program's token")).status_code == 200


def test_metrics_are_shown_to_any_key_but_a_user_s(client: FlaskClient, make_key: Maker) -> None:
    elsewhere = {"REMOTE_ADDR": "10.0.0.7"}
    assert client.get("/metrics").status_code == 200
    make_key("admin")
    assert client.get("/metrics").status_code == 401
    for secret, status in (
        (make_key("read"), 200),
        (make_key("admin", user="maria"), 403),
        (UNKNOWN, 401),
    ):
        assert client.get("/metrics", headers=bearer(secret), environ_overrides=elsewhere).status_code == status


def test_every_operation_of_the_api_says_which_scope_it_needs(client: FlaskClient) -> None:
    is_open = {each.path: each.scope is None for each in OPERATIONS}
    assert [path for path in is_open if path.startswith(("/v1/", "/a2a/")) == is_open[path]] == [
        "/a2a/{name}/.well-known/agent-card.json"
    ]
    assert [each.path for each in TABLE if each.method == "GET" and each.scope == "chat"] == []
    assert [each.path for each in TABLE if each.method != "GET" and each.scope == "read"] == []
    document = client.get("/openapi.json").get_json()
    for each in TABLE:
        assert document["paths"][each.path][each.method.lower()]["security"][0] == {"key": [each.scope]}


def asked(operation: Operation, holder: Holder) -> TestResponse:
    """The operation, for ids that nobody has; a change has an empty body."""
    path = operation.path.replace("{", "none-").replace("}", "")
    return holder(operation.method, path, None if operation.method == "GET" else {})


@pytest.mark.cases("scope", SCOPES)
def test_a_key_may_do_what_its_scope_includes_and_nothing_else(as_key: AsKey, scope: KeyScope) -> None:
    holder = as_key(scope)
    for operation in TABLE:
        assert operation.scope is not None
        answer = asked(operation, holder)
        if SCOPES.index(operation.scope) <= SCOPES.index(scope):
            assert answer.status_code not in (401, 403), (operation.method, operation.path)
            continue
        assert answer.status_code == 403, (operation.method, operation.path)
        problem = answer.get_json()
        assert (problem["type"], problem["required_scope"]) == ("/problems/insufficient-scope", operation.scope)
        assert f'scope="{operation.scope}"' in answer.headers["WWW-Authenticate"]


def test_an_unknown_path_is_404_whatever_the_scope(as_key: AsKey) -> None:
    assert as_key("read")("POST", "/v1/nowhere", {}).status_code == 404
    assert as_key("read")("PUT", "/v1/sessions", {}).status_code == 405


def test_a_user_s_admin_makes_keys_for_that_user_alone(as_key: AsKey, make_key: Maker) -> None:
    maria = as_key("admin", user="maria")
    make_key("read", user="john")
    assert maria("POST", "/v1/keys", {"name": "x", "user": "john"}).status_code == 403
    assert maria("POST", "/v1/keys", {"name": "x"}).get_json()["user"] == "maria"
    assert {key["user"] for key in maria("GET", "/v1/keys").get_json()["data"]} == {"maria"}


def test_what_a_user_s_key_creates_is_the_user_s(as_key: AsKey) -> None:
    maria, whole = as_key("chat", user="maria"), as_key("chat")
    assert maria("POST", "/v1/sessions", {"id": "s1"}).get_json()["user"] == "maria"
    assert maria("POST", "/v1/sessions", {"id": "s2", "user": "maria"}).status_code == 201
    assert maria("POST", "/v1/sessions", {"id": "s3", "user": "john"}).status_code == 403
    assert maria("POST", "/v1/sessions/s4/turns", {"input": "x"}).status_code == 202
    assert whole("GET", "/v1/sessions/s4").get_json()["user"] == "maria"
    assert {session["id"] for session in whole("GET", "/v1/sessions").get_json()["data"]} == {"s1", "s2", "s4"}


def test_a_session_of_another_user_takes_no_turn_and_its_name_is_taken(as_key: AsKey, stage: WebStage) -> None:
    as_key("chat", user="john")("POST", "/v1/sessions", {"id": "s1"})
    as_key("chat")("POST", "/v1/sessions", {"id": "s2"})
    maria = as_key("chat", user="maria")
    for session in ("s1", "s2"):
        assert maria("POST", f"/v1/sessions/{session}/turns", {"input": "x"}).status_code == 404
        assert maria("POST", f"/v1/sessions/{session}/turns", {"input": "x" * 500}).status_code == 404
        assert maria("POST", "/v1/sessions", {"id": session}).status_code == 409
    assert stage.count() == 2


def test_users_do_not_meet_each_other_s_idempotency_keys(client: FlaskClient, make_key: Maker) -> None:
    def submit(secret: str, session: str) -> TestResponse:
        headers = {**bearer(secret), "Idempotency-Key": "order-1"}
        return client.post(f"/v1/sessions/{session}/turns", json={"input": "x"}, headers=headers)

    maria, john, whole = make_key("chat", user="maria"), make_key("chat", user="john"), make_key("chat")
    ids = [submit(maria, "m").get_json()["id"], submit(john, "j").get_json()["id"], submit(whole, "w").get_json()["id"]]
    assert len(set(ids)) == 3
    again = submit(maria, "m")
    assert again.get_json()["id"] == ids[0]
    assert again.headers["Idempotency-Replayed"] == "true"
    assert "order-1" not in json.dumps(client.get(f"/v1/turns/{ids[0]}", headers=bearer(john)).get_json())
    assert submit(john, "m").status_code == 422


def test_a_stream_ends_with_its_key(as_key: AsKey, live: Live, make_key: Maker) -> None:
    admin, secret = as_key("admin"), make_key("read")
    turn = admin("POST", "/v1/sessions/s1/turns", {"input": "x"}).get_json()
    asked = live.asked("GET", f"/v1/turns/{turn['id']}/events", **bearer(secret))
    lines = iter(asked.getresponse())
    assert b"event: turn.queued\n" in lines
    [read] = [key for key in admin("GET", "/v1/keys").get_json()["data"] if key["scopes"] == ["read"]]
    admin("DELETE", f"/v1/keys/{read['id']}")
    assert not any(line.startswith(b"event: ") for line in lines)
    asked.close()
