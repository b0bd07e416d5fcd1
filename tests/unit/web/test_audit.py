"""The audit over HTTP: paged, restricted, for administrators alone."""

from typing import Any

import pytest
from flask.testing import FlaskClient
from jsonschema import Draft202012Validator

from loom_worker.core.isolation.home_secrets import home_token
from loom_worker.core.values.api_keys import ALL_SCOPES, KeyHolder, KeyScope, NewKey
from loom_worker.core.values.audit import ACTIONS
from tests.support.belongings import belongings
from tests.support.web_stage import MakeStage, WebStage
from tests.unit.web.described import DOCUMENT
from web.app import OPERATIONS, create_app

ALPHA = KeyHolder("alpha", ALL_SCOPES)


def bearer(stage: WebStage, scope: KeyScope = "admin") -> dict[str, str]:
    return {"Authorization": f"Bearer {stage.service.keys.create(ALPHA, NewKey('a key', (scope,)))[1]}"}


def listed(client: FlaskClient, headers: dict[str, str], query: str = "") -> list[Any]:
    answer = client.get(f"/v1/audit{query}", headers=headers)
    assert answer.status_code == 200, answer.text
    rows: list[Any] = answer.get_json()["data"]
    return rows


def test_every_act_of_an_administrator_names_the_key_that_did_it(client: FlaskClient, stage: WebStage) -> None:
    owner = belongings(stage, ALPHA, "ours7f3")
    headers = {"Authorization": f"Bearer {owner.secret}"}
    ids = owner.ids
    acts = [
        ("POST", "/v1/keys", {"name": "new"}, "key.created"),
        ("POST", f"/v1/keys/{ids['key_id']}/rotate", {}, "key.rotated"),
        ("DELETE", f"/v1/keys/{ids['key_id']}", None, "key.revoked"),
        ("PATCH", "/v1/workspaces/alpha", {"budget": {"tokens": 9}}, "workspace.changed"),
        ("PATCH", "/v1/workspaces/alpha", {"disabled": True}, "workspace.disabled"),
        ("PATCH", "/v1/workspaces/alpha", {"disabled": False}, "workspace.enabled"),
        ("POST", "/v1/pairings", {"channel": "sms", "identity": "+1", "user": "maria"}, "pairing.created"),
        ("DELETE", f"/v1/pairings/{ids['pairing_id']}", None, "pairing.deleted"),
        ("POST", f"/v1/deliveries/{ids['delivery_id']}/replay", {}, "delivery.replayed"),
        ("POST", f"/v1/agent-messages/{ids['agent_message_id']}/replay", {}, "message.replayed"),
        ("POST", f"/v1/turns/{ids['turn_id']}/approvals/{ids['call_id']}", {"decision": "approve"}, "approval.decided"),
        ("DELETE", f"/v1/sessions/{ids['session_id']}", None, "session.deleted"),
        ("DELETE", f"/v1/users/{ids['user']}", None, "user.deleted"),
    ]
    # The first rotation ended the key already, so that its revocation changes nothing.
    acts.pop(2)
    mine = next(key for key in client.get("/v1/keys", headers=headers).get_json()["data"] if key["name"] == "asks")
    for method, path, body, kind in acts:
        sent = {} if body is None else {"json": body}
        assert client.open(path, method=method, headers=headers, **sent).status_code < 300, path
        last = listed(client, headers, f"?kind={kind}")[0]
        assert last["actor"] == mine["id"], kind
    assert stage.service.audit.verify() == ()


def test_every_operation_that_needs_admin_and_changes_something_leaves_a_row() -> None:
    known = {
        "/v1/keys": "key.created",
        "/v1/keys/{key_id}": "key.revoked",
        "/v1/keys/{key_id}/rotate": "key.rotated",
        "/v1/workspaces/{workspace}": "workspace.changed",
        "/v1/deliveries/{delivery_id}/replay": "delivery.replayed",
        "/v1/agent-messages/{agent_message_id}/replay": "message.replayed",
        "/v1/users/{user}": "user.deleted",
        "/v1/agents/{name}/activate": "agent.activated",
        "/v1/schedules/{name}": "schedule.changed",
        "/v1/schedules/{name}/run": "schedule.started",
        "/v1/agents/{name}/learned": "learned.imported",
        "/v1/agents/{name}/learned/{version}": "learned.erased",
        "/v1/agents/{name}/learned/activate": "learned.activated",
        "/v1/agents/{name}/learned/rollback": "learned.rolled_back",
        "/v1/pairings": "pairing.created",
        "/v1/pairings/{pairing_id}": "pairing.deleted",
    }
    served = {each.path for each in OPERATIONS if each.scope == "admin" and each.method != "GET"}
    assert served == set(known), "say in docs/audit.md, and here, what a new administrative operation writes"
    assert set(known.values()) <= set(ACTIONS)


def test_a_row_is_what_the_document_says(client: FlaskClient, stage: WebStage) -> None:
    headers = {"Authorization": f"Bearer {belongings(stage, ALPHA, 'ours7f3').secret}"}
    schemas = {"components": DOCUMENT["components"]}
    check = Draft202012Validator({**schemas, "$ref": "#/components/schemas/AuditRow"})
    rows = listed(client, headers)
    assert {row["kind"] for row in rows} == {"turn.ended", "key.created", "pairing.created"}
    for row in rows:
        check.validate(row)


def test_filters_and_pages_restrict_what_is_listed(client: FlaskClient, stage: WebStage) -> None:
    owner = belongings(stage, ALPHA, "ours7f3")
    headers = {"Authorization": f"Bearer {owner.secret}"}
    [ended] = listed(client, headers, f"?session={owner.ids['session_id']}")
    assert ended["kind"] == "turn.ended"
    assert listed(client, headers, f"?turn={ended['turn_id']}") == [ended]
    of_run, of_session = listed(client, headers, f"?agent={ended['agent']}")
    assert (of_session, of_run["session_id"].startswith("gated:")) == (ended, True)
    assert listed(client, headers, "?agent=nobody") == []
    assert listed(client, headers, "?user=nobody") == []
    assert listed(client, headers, "?since=2099-01-01T00:00:00Z") == []
    page = client.get("/v1/audit?limit=2", headers=headers).get_json()
    rest = listed(client, headers, f"?after={page['next']}")
    assert [row["seq"] for row in [*page["data"], *rest]] == [5, 4, 3, 2, 1]


@pytest.mark.parametrize("scope", ["read", "chat"])
def test_who_is_no_administrator_sees_no_row(client: FlaskClient, stage: WebStage, scope: KeyScope) -> None:
    answer = client.get("/v1/audit", headers=bearer(stage, scope))
    assert (answer.status_code, answer.get_json()["required_scope"]) == (403, "admin")


def test_a_key_of_the_environment_and_this_machine_are_told_apart(make_stage: MakeStage) -> None:
    free = make_stage()
    created = {"json": {"name": "first"}}
    token = {"Authorization": f"Bearer {home_token(free.service.settings.home).text}"}
    assert create_app(free.service).test_client().post("/v1/keys", headers=token, **created).status_code == 201
    keyed = make_stage(api_keys={"kept-elsewhere": "default"})
    headers = {"Authorization": "Bearer kept-elsewhere"}
    client = create_app(keyed.service).test_client()
    assert client.post("/v1/keys", headers=headers, **created).status_code == 201
    second, first = listed(client, headers)
    assert first["actor"] == "local"
    assert second["actor"].startswith("env_")
    assert len(second["actor"]) == len("env_") + 8


def test_a_turn_names_the_key_that_submitted_it(client: FlaskClient, stage: WebStage) -> None:
    asks, admin = bearer(stage, "chat"), bearer(stage)
    turn = client.post("/v1/sessions/s1/turns", json={"input": "Hi"}, headers=asks).get_json()
    assert client.post(f"/v1/turns/{turn['id']}/cancel", headers=asks).status_code < 300
    [ended] = listed(client, admin, f"?turn={turn['id']}")
    keys = {key["id"]: key["scopes"] for key in client.get("/v1/keys", headers=admin).get_json()["data"]}
    assert keys[ended["actor"]] == ["chat"]
