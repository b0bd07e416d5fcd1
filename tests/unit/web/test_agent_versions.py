"""Versions of agents over HTTP, with the real service on a real database."""

from typing import Any

import pytest
from flask.testing import FlaskClient

from loom_worker.core.values.agent_versions import seen
from loom_worker.core.values.api_keys import ALL_SCOPES, KeyHolder, NewKey
from loom_worker.store.agent_versions import AgentVersions
from tests.support.web_stage import WebStage

URL = "/v1/agents/default"
OPERATOR = KeyHolder("default", ALL_SCOPES)


@pytest.fixture(autouse=True)
def _two_versions(stage: WebStage) -> None:
    rows = AgentVersions(stage.database)
    for prompt in ("Be kind.\n", "Be kind.\nBe brief.\n"):
        raw = {"agent": {"name": "default", "system_prompt": prompt}}
        rows.record([seen("default", "1", raw)], rows.newest(), now_ms=1)


def test_versions_are_listed_looked_at_and_compared(client: FlaskClient) -> None:
    listed = client.get(f"{URL}/versions").get_json()
    assert [(each["version"], each["active"], each["by"]) for each in listed["data"]] == [
        ("1-2", True, "file"),
        ("1", False, "file"),
    ]
    assert client.get(f"{URL}/versions?limit=1").get_json()["next"] == "1-2"
    one = client.get(f"{URL}/versions/latest").get_json()
    assert (one["version"], one["document"]["agent"]["system_prompt"]) == ("1-2", "Be kind.\nBe brief.\n")
    found = client.get(f"{URL}/versions/1-2/diff").get_json()
    assert (found["from"], found["to"]) == ("1", "1-2")
    assert [line.strip() for line in found["diff"].splitlines() if line.startswith("+ ")] == ["+    Be brief."]
    back = client.get(f"{URL}/versions/1/diff?from=latest").get_json()
    assert any(line.startswith("- ") for line in back["diff"].splitlines())
    assert client.get(f"{URL}/versions/1/diff").get_json()["diff"] == ""


def test_one_is_activated_as_production_and_as_a_canary_until_the_file_is_followed_again(client: FlaskClient) -> None:
    active = client.post(f"{URL}/activate", json={"version": "1"}).get_json()
    assert (active["version"], active["labels"], active["active"]) == ("1", ["production"], True)
    canary = {"version": "1-2", "as": "canary", "share": 0.1}
    assert client.post(f"{URL}/activate", json=canary).get_json()["labels"] == ["canary"]
    labels = {each["version"]: each["labels"] for each in client.get(f"{URL}/versions").get_json()["data"]}
    assert labels == {"1-2": ["canary"], "1": ["production"]}
    promoted = client.post(f"{URL}/activate", json={"version": "canary"}).get_json()
    assert (promoted["version"], promoted["active"]) == ("1-2", True)
    followed = client.post(f"{URL}/activate", json={"version": "latest"}).get_json()
    assert (followed["labels"], followed["active"]) == (["canary"], True)
    kinds = [row["kind"] for row in client.get("/v1/audit").get_json()["data"]]
    assert kinds.count("agent.activated") == 4


def test_sessions_move_one_by_one_and_all_at_once(client: FlaskClient) -> None:
    for name in ("s", "t"):
        client.post("/v1/sessions", json={"id": name, "agent": "default"})
    moved = client.patch("/v1/sessions/s", json={"agent": "default@1"})
    assert (moved.status_code, moved.get_json()["agent_version"]) == (200, "1")
    active = client.post(f"{URL}/activate", json={"version": "1-2", "sessions": "all"}).get_json()
    assert active["moved_sessions"] == 2
    client.post("/v1/sessions", json={"id": "none"})
    assert client.patch("/v1/sessions/none", json={"agent": "default@1"}).get_json()["agent_version"] == "1"
    assert client.get("/v1/sessions/s").get_json()["agent_version"] == "1-2"
    assert client.patch("/v1/sessions/s", json={"agent": "default@production"}).get_json()["agent_version"] == "1-2"
    refused = client.patch("/v1/sessions/s", json={"agent": "default@9"})
    assert (refused.status_code, refused.get_json()["errors"][0]["pointer"]) == (422, "/agent")


def test_a_key_without_the_scope_admin_chooses_only_what_new_sessions_get(client: FlaskClient, stage: WebStage) -> None:
    _, secret = stage.service.keys.create(OPERATOR, NewKey("k", ("chat",)))
    headers = {"Authorization": f"Bearer {secret}"}
    client.post("/v1/sessions", json={"id": "s"}, headers=headers)

    def patch(version: str) -> int:
        return client.patch("/v1/sessions/s", json={"agent": f"default@{version}"}, headers=headers).status_code

    assert [patch(version) for version in ("latest", "1-2", "1")] == [200, 200, 403]
    assert client.get(f"{URL}/versions/1", headers=headers).status_code == 403
    assert client.get(f"{URL}/versions", headers=headers).status_code == 200
    assert client.post(f"{URL}/activate", json={"version": "1"}, headers=headers).status_code == 403


def test_a_key_of_one_user_activates_nothing_for_all(client: FlaskClient, stage: WebStage) -> None:
    _, secret = stage.service.keys.create(OPERATOR, NewKey("k", ("admin",), user="maria"))
    headers = {"Authorization": f"Bearer {secret}"}
    answer = client.post(f"{URL}/activate", json={"version": "1"}, headers=headers)
    assert (answer.status_code, "acts for a user" in answer.get_json()["detail"]) == (403, True)


@pytest.mark.cases(
    ("method", "url", "body", "status"),
    [
        ("GET", "/v1/agents/ghost/versions", None, 404),
        ("GET", f"/v1/agents/{'x' * 200}/versions", None, 404),
        ("GET", "/v1/agents/a%00b/versions", None, 404),
        ("GET", f"{URL}/versions?after=9", None, 422),
        ("GET", f"{URL}/versions/9", None, 404),
        ("GET", f"{URL}/versions/canary", None, 404),
        ("GET", f"{URL}/versions/1/diff?from=9", None, 404),
        ("POST", f"{URL}/activate", {}, 422),
        ("POST", f"{URL}/activate", {"version": "9"}, 404),
        ("POST", "/v1/agents/ghost/activate", {"version": "1"}, 404),
        ("POST", f"{URL}/activate", {"version": "1", "as": "staging"}, 422),
        ("POST", f"{URL}/activate", {"version": "1", "as": "canary"}, 422),
        ("POST", f"{URL}/activate", {"version": "1", "as": "canary", "share": 2}, 422),
        ("POST", f"{URL}/activate", {"version": "1", "share": 0.5}, 422),
        ("POST", f"{URL}/activate", {"version": "1", "as": "canary", "share": 0.5, "sessions": "all"}, 422),
        ("POST", f"{URL}/activate", {"version": "1", "sessions": "some"}, 422),
    ],
)
def test_what_cannot_be_is_refused(client: FlaskClient, method: str, url: str, body: Any, status: int) -> None:
    assert client.open(url, method=method, json=body).status_code == status
