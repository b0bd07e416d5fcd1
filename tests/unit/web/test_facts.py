"""What is known of a user is listed, corrected and forgotten by the user and by who acts for the workspace."""

from collections.abc import Callable
from typing import Any

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from loom_worker.core.values.api_keys import ALL_SCOPES, KeyHolder, NewKey
from loom_worker.core.values.audit import AuditFilter
from loom_worker.core.values.tenants import WorkspaceUser
from tests.support.web_stage import WebStage
from tests.unit.store.facts_made import session_of, states

MARIA = WorkspaceUser("alpha", "maria@x y")
URL = "/v1/users/maria%40x%20y/facts"
Ask = Callable[..., TestResponse]


def key_of(stage: WebStage, workspace: str, user: str | None = None) -> dict[str, str]:
    _, secret = stage.service.keys.create(KeyHolder(workspace, ALL_SCOPES, user), NewKey("asks", ("read", "chat")))
    return {"Authorization": f"Bearer {secret}"}


@pytest.fixture
def ask(stage: WebStage, client: FlaskClient) -> Ask:
    """Asks with the workspace's key, unless another is given."""
    lane = session_of(stage.database, MARIA, "s1")
    for at, triple in enumerate(("user|lives in|Berlin", "user|lives in|Paris", "user|likes|tea")):
        states(stage.database, lane, triple, at=at)
    ours = key_of(stage, "alpha")

    def ask(method: str, url: str, body: Any = None, headers: dict[str, str] | None = None) -> TestResponse:
        sent = {} if body is None else {"json": body}
        return client.open(url, method=method, headers=headers or ours, **sent)

    return ask


def objects(answer: TestResponse) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [fact["object"] for fact in answer.get_json()["data"]]


def test_facts_are_listed_by_status_topic_and_page(ask: Ask) -> None:
    assert objects(ask("GET", URL)) == ["tea", "Paris"]
    assert objects(ask("GET", f"{URL}?status=closed")) == ["Berlin"]
    assert objects(ask("GET", f"{URL}?status=all&topic=where+to+live")) == ["Paris", "Berlin"]
    first = ask("GET", f"{URL}?limit=1").get_json()
    assert (first["has_more"], objects(ask("GET", f"{URL}?limit=1&after={first['next']}"))) == (True, ["Paris"])
    assert objects(ask("GET", "/v1/sessions/s1/facts?status=closed")) == ["Berlin"]
    [tea] = ask("GET", f"{URL}?topic=tea").get_json()["data"]
    assert (tea["subject"], tea["session_id"], tea["message_id"], tea["source"], tea["until"]) == (
        *("user", "s1", "msg_1"),
        *("conversation", None),
    )


def test_a_correction_is_answered_with_the_new_fact_and_the_audit_knows_of_it(ask: Ask, stage: WebStage) -> None:
    paris = ask("GET", URL).get_json()["data"][1]
    new = ask("PATCH", f"{URL}/{paris['id']}", {"object": "  Lyon\n"}).get_json()
    assert (new["object"], new["relation"], new["source"], new["confidence"]) == ("Lyon", "lives in", "user", 1.0)
    old = next(each for each in ask("GET", f"{URL}?status=closed").get_json()["data"] if each["object"] == "Paris")
    assert old["superseded_by"] == new["id"]
    again = ask("PATCH", f"{URL}/{paris['id']}", {"object": "Rome"})
    assert (again.status_code, again.get_json()["type"].rpartition("/")[2]) == (409, "fact-closed")
    ended = ask("PATCH", f"{URL}/{new['id']}", {"until": "2026-01-01T00:00:00Z", "confidence": 0.5}).get_json()
    assert ended["until"] is not None
    assert ask("DELETE", f"{URL}/{ended['id']}").status_code == 204
    assert objects(ask("GET", f"{URL}?topic=Lyon&status=open")) == []
    page = stage.service.audit.page("alpha", AuditFilter(user=MARIA.user), limit=9, after=None)
    kinds = [row.entry.action for row in page.items]
    assert kinds == ["fact.forgotten", "fact.corrected", "fact.corrected"]


@pytest.mark.cases(
    "body",
    [
        {},
        {"object": " "},
        {"object": "x" * 501},
        {"object": "\u200b"},
        {"relation": "y" * 101},
        {"confidence": 2},
        {"until": "soon"},
        {"until": "2999-01-01T00:00:00Z"},
        {"subject": "Ada"},
    ],
    ids=str,
)
def test_a_correction_that_cannot_be_is_refused_and_changes_nothing(ask: Ask, body: dict[str, Any]) -> None:
    tea = ask("GET", URL).get_json()["data"][0]
    answer = ask("PATCH", f"{URL}/{tea['id']}", body)
    assert answer.status_code == 422, answer.text
    assert answer.get_json()["errors"]
    assert ask("GET", URL).get_json()["data"][0] == tea


def test_nobody_else_finds_facts_of_a_user(ask: Ask, stage: WebStage) -> None:
    tea = ask("GET", URL).get_json()["data"][0]["id"]
    own = key_of(stage, "alpha", MARIA.user)
    assert objects(ask("GET", URL, headers=own)) == ["tea", "Paris"]
    session_of(stage.database, WorkspaceUser("beta", MARIA.user), "s1")
    strangers = {
        "another user": (key_of(stage, "alpha", "john"), 404),
        "another workspace": (key_of(stage, "gamma"), 404),
        "a user of that name in another workspace": (key_of(stage, "beta", MARIA.user), 200),
    }
    for who, (headers, status) in strangers.items():
        listed = ask("GET", URL, headers=headers)
        assert (listed.status_code, "tea" in listed.text) == (status, False), who
        assert ask("PATCH", f"{URL}/{tea}", {"object": "x"}, headers).status_code == 404, who
        assert ask("DELETE", f"{URL}/{tea}", headers=headers).status_code == 404, who
    assert ask("DELETE", f"{URL}/{tea}", headers=own).status_code == 204
    for missing in (f"{URL}/{tea}", f"{URL}/..", "/v1/users/nobody/facts/fact_1"):
        assert ask("DELETE", missing).status_code == 404
    assert ask("GET", "/v1/users/nobody/facts").status_code == 404
    assert ask("GET", f"{URL}?status=maybe").status_code == 400
    assert ask("GET", f"{URL}?after=x").status_code == 422


def test_all_facts_of_a_user_are_deleted_at_once_and_do_not_come_back(ask: Ask, stage: WebStage) -> None:
    other = session_of(stage.database, WorkspaceUser("alpha", "bob"), "s2")
    states(stage.database, other, "user|likes|coffee", at=1)
    assert ask("DELETE", URL).status_code == 204
    assert objects(ask("GET", f"{URL}?status=all")) == []
    assert objects(ask("GET", "/v1/users/bob/facts")) == ["coffee"]
    long_ago = -10 * 365 * 86_400_000
    states(stage.database, session_of(stage.database, MARIA, "s3"), "user|likes|tea", at=long_ago)
    assert objects(ask("GET", URL)) == []
    assert ask("DELETE", "/v1/users/nobody/facts").status_code == 404
    assert ask("DELETE", URL, headers=key_of(stage, "alpha", "bob")).status_code == 404


def test_a_correction_passes_the_rules_for_input(ask: Ask, stage: WebStage) -> None:
    _, admin = stage.service.keys.create(KeyHolder("alpha", ALL_SCOPES), NewKey("rules", ("admin",)))
    rules = {"guardrails": {"input": {"card": "block"}}}
    assert ask("PATCH", "/v1/workspaces/alpha", rules, {"Authorization": f"Bearer {admin}"}).status_code == 200
    [tea] = ask("GET", f"{URL}?topic=tea").get_json()["data"]
    refused = ask("PATCH", f"{URL}/{tea['id']}", {"object": "4111 1111 1111 1111"})
    assert [flaw["pointer"] for flaw in refused.get_json()["errors"]] == ["/object"]
