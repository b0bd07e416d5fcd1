"""Learned layers over HTTP."""

from dataclasses import replace
from typing import Any

import pytest
from flask.testing import FlaskClient

from loom_worker.core.values.api_keys import ALL_SCOPES, KeyHolder, NewKey
from loom_worker.core.values.learned import NONE, Demonstration, LearnedLayer, Signature
from tests.support.stage import StageKnowledge
from tests.support.web_stage import WebStage

URL = "/v1/agents/default/learned"
PROGRAM: dict[str, Any] = {
    "self": {
        "demos": [{"augmented": True, "question": "1 + 1", "answer": 2}],
        "signature": {"instructions": "Add the numbers.", "fields": [{"prefix": "Answer:", "description": "digits"}]},
        "lm": None,
        "vote": 3,
    },
    "metadata": {"dependency_versions": {"python": "3.11", "dspy": "3.4.1", "cloudpickle": "3.1"}},
}
PROMPTS = [{"name": "system_prompt", "value": "Add them.", "gradients": ["Too short."]}]


def imported(client: FlaskClient, content: Any = PROGRAM, **more: Any) -> Any:
    answer = client.post(URL, json={"content": content, **more})
    assert answer.status_code == 201, answer.get_json()
    return answer.get_json()


def test_an_import_is_the_next_version_and_not_active(client: FlaskClient) -> None:
    first = imported(client, source="program.json", note="nightly")
    assert (first["version"], first["form"], first["made_with"], first["source"]) == (
        *(1, "dspy", "dspy 3.4.1"),
        "program.json",
    )
    assert (first["signatures"], first["demonstrations"], first["gradients"], first["note"]) == (1, 1, 0, "nightly")
    assert first["warnings"] == ["self.vote: not imported"]
    assert (first["active"], first["share"], first["scores"]["turns"]) == (False, 0.0, 0)
    assert imported(client, PROMPTS, form="textgrad")["version"] == 2
    again = client.post(URL, json={"content": PROGRAM})
    assert (again.status_code, again.get_json()["version"]) == (200, 1)
    layer = client.get(f"{URL}/1").get_json()["layer"]
    assert layer["version"] == 1
    assert layer["signatures"][0]["instructions"] == "Add the numbers."
    assert layer["demonstrations"] == [
        {"signature": "self", "augmented": True, "values": {"question": "1 + 1", "answer": 2}}
    ]


def test_versions_are_listed_in_pages_down_to_no_version_at_all(client: FlaskClient) -> None:
    imported(client)
    imported(client, PROMPTS)
    page = client.get(f"{URL}?limit=2").get_json()
    assert ([each["version"] for each in page["data"]], page["has_more"]) == ([2, 1], True)
    rest = client.get(f"{URL}?after={page['next']}").get_json()
    assert [(each["version"], each["form"], each["active"], each["share"]) for each in rest["data"]] == [
        (0, None, True, 1.0)
    ]
    assert (rest["has_more"], rest["next"]) == (False, None)
    assert client.get(f"{URL}?after=0").get_json()["data"] == []


def test_a_version_is_activated_tried_and_taken_back(client: FlaskClient) -> None:
    imported(client)
    imported(client, PROMPTS)
    done = client.post(f"{URL}/activate", json={"version": 1}).get_json()
    assert done == {
        "object": "learned_activation",
        "agent": "default",
        "version": 1,
        "trial_version": None,
        "share": 0.0,
    }
    assert client.post(f"{URL}/activate", json={"version": 2, "share": 0.25}).get_json()["trial_version"] == 2
    shares = {each["version"]: (each["active"], each["share"]) for each in client.get(URL).get_json()["data"]}
    assert shares == {2: (True, 0.25), 1: (True, 0.75), 0: (False, 0.0)}
    assert client.post(f"{URL}/rollback").get_json()["trial_version"] is None
    assert client.post(f"{URL}/rollback").get_json()["version"] == 0
    assert client.post(f"{URL}/rollback").status_code == 409
    kinds = [row["kind"] for row in client.get("/v1/audit").get_json()["data"]]
    assert kinds[:2] == ["learned.rolled_back"] * 2
    assert {"learned.imported", "learned.activated"} <= set(kinds)


@pytest.mark.cases(
    ("method", "path", "body", "status"),
    [
        ("POST", "", {}, 422),
        ("POST", "", {"content": "text"}, 422),
        ("POST", "", {"content": {}}, 422),
        ("POST", "", {"content": PROGRAM, "form": "textgrad"}, 422),
        ("POST", "", {"content": PROGRAM, "form": "pickle"}, 422),
        ("POST", "", {"content": PROGRAM, "note": "x" * 3_000}, 422),
        ("POST", "", {"content": PROGRAM, "activate": True}, 422),
        ("GET", "/1", None, 404),
        ("GET", "/0", None, 404),
        ("GET", "/latest", None, 404),
        ("GET", f"/{'9' * 40}", None, 404),
        ("GET", "?after=x", None, 422),
        ("DELETE", "/1", None, 404),
        ("DELETE", "/latest", None, 404),
        ("POST", "/activate", {"version": 1}, 404),
        ("POST", "/activate", {}, 422),
        ("POST", "/activate", {"version": -1}, 422),
        ("POST", "/activate", {"version": 0, "share": 1.5}, 422),
        ("POST", "/activate", {"version": "latest"}, 422),
        ("POST", "/rollback", {"version": 1}, 422),
    ],
)
def test_what_cannot_be_done_is_refused(client: FlaskClient, method: str, path: str, body: Any, status: int) -> None:
    answer = client.open(f"{URL}{path}", method=method, json=body)
    assert answer.status_code == status, (path, body, answer.get_json())


def test_an_erased_version_keeps_its_number(client: FlaskClient) -> None:
    imported(client)
    client.post(f"{URL}/activate", json={"version": 1})
    assert client.delete(f"{URL}/1").status_code == 409
    client.post(f"{URL}/activate", json={"version": 0})
    assert client.delete(f"{URL}/1").status_code == 204
    assert client.get(f"{URL}/1").get_json()["layer"]["signatures"] == []
    assert imported(client)["version"] == 2


def test_an_error_names_the_file_and_the_place_in_it(client: FlaskClient) -> None:
    wrong = {"self": {"demos": [{"a": 1}, 2], "signature": {}}}
    problem = client.post(URL, json={"content": wrong, "source": "program.json"}).get_json()
    assert problem["type"] == "/problems/learned-refused"
    assert problem["detail"] == "program.json: self.demos[1]: a mapping is needed, not int"
    assert problem["errors"] == [{"pointer": "/content/self/demos/1", "detail": "a mapping is needed, not int"}]


def test_an_unknown_agent_has_no_layers(client: FlaskClient) -> None:
    assert client.get("/v1/agents/nobody/learned").status_code == 404
    assert client.post("/v1/agents/nobody/learned", json={"content": PROGRAM}).status_code == 404
    assert client.get(f"/v1/agents/{'x' * 300}/learned").status_code == 404


@pytest.mark.parametrize(
    ("who", "status"),
    [
        (KeyHolder("beta", ALL_SCOPES), 404),
        (KeyHolder("alpha", ALL_SCOPES, "maria"), 404),
        (KeyHolder("alpha", frozenset({"chat", "read"})), 200),
    ],
)
def test_layers_are_their_workspace_s_and_an_administrator_s_to_change(
    client: FlaskClient, stage: WebStage, who: KeyHolder, status: int
) -> None:
    def key(holder: KeyHolder) -> dict[str, str]:
        admin = replace(holder, scopes=ALL_SCOPES)
        _, secret = stage.service.keys.create(admin, NewKey("asks", tuple(holder.scopes), holder.user))
        return {"Authorization": f"Bearer {secret}"}

    ours, theirs = key(KeyHolder("alpha", ALL_SCOPES)), key(who)
    assert client.post(URL, json={"content": PROGRAM}, headers=ours).status_code == 201
    assert client.get(f"{URL}/1", headers=theirs).status_code == status
    changed = client.post(f"{URL}/activate", json={"version": 1}, headers=theirs)
    assert changed.status_code == (404 if "admin" in who.scopes else 403)
    assert client.get(URL, headers=ours).get_json()["data"][0]["active"] is False


def test_a_session_that_has_not_begun_is_shown_with_what_it_would_be_sent(client: FlaskClient, stage: WebStage) -> None:
    client.post("/v1/sessions", json={"id": "s1"})
    without = client.get("/v1/sessions/s1/context").get_json()
    assert without["learned"] is None
    layer = LearnedLayer((Signature("self", "Add the numbers."),), (Demonstration("self", {"a": "word " * 5_000}),))
    knowledge = stage.service.contexts.knowledge
    assert isinstance(knowledge, StageKnowledge)
    knowledge.layers[NONE] = layer
    with_layer = client.get("/v1/sessions/s1/context").get_json()
    assert with_layer["learned"] == {
        "version": NONE,
        "signatures": 1,
        "demonstrations": 0,
        "left_out_signatures": 0,
        "left_out_demonstrations": 1,
    }
    assert with_layer["layers"]["rom"]["tokens"] > without["layers"]["rom"]["tokens"]
    assert with_layer["rom_digest"] != without["rom_digest"]
    assert client.get("/v1/sessions/s1").get_json()["learned_version"] is None
