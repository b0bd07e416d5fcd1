"""Workspaces over HTTP: budgets that refuse, the switch that stops everything, and what was spent."""

from typing import Any

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from loom_worker.core.values.agents import Agent, McpServer, ModelChoice
from tests.support.runs import pipeline, workflow
from tests.support.web_stage import MakeStage, WebStage
from web.app import create_app


def ask(client: FlaskClient, session: str = "s1", **more: Any) -> TestResponse:
    return client.post(f"/v1/sessions/{session}/turns", json={"input": "Hi", **more})


def change(client: FlaskClient, **rules: Any) -> TestResponse:
    return client.patch("/v1/workspaces/default", json=rules)


def problem(answer: TestResponse) -> tuple[int, str]:
    return answer.status_code, answer.get_json()["type"].removeprefix("/problems/")


def test_a_workspace_whose_budget_is_spent_accepts_no_turn_and_says_until_when(
    client: FlaskClient, stage: WebStage
) -> None:
    stage.worker.finish(ask(client).get_json()["id"])
    assert change(client, budget={"day": {"tokens": 5}}).status_code == 200
    refused = ask(client)
    assert problem(refused) == (429, "budget-exceeded")
    assert 1 <= int(refused.headers["Retry-After"]) <= 86_400
    [spent] = client.get("/v1/workspaces/default").get_json()["spending"]
    assert spent["used"]["tokens"] >= 5
    assert spent["renews_at"] is not None
    change(client, budget=None)
    assert ask(client).status_code == 202


@pytest.mark.cases(("budget", "renews"), [({"day": {"tokens": 100}}, True), ({"tokens": 100}, False)])
def test_a_budget_that_pays_for_no_call_accepts_nothing(
    client: FlaskClient, stage: WebStage, budget: Any, renews: bool
) -> None:
    stage.workflows["w"] = workflow(pipeline("Begin."), "w")
    client.post("/v1/sessions", json={"id": (poor := f"renews-{renews}"), "budget": budget})
    refused = ask(client, poor)
    assert problem(refused) == (429, "budget-exceeded")
    assert (int(refused.headers["Retry-After"]) == 86_400) == (not renews)
    if not renews:
        own = [ask(client, budget=budget), client.post("/v1/workflows/w/runs", json={"budget": budget})]
        assert [problem(each) for each in own] == [(429, "budget-exceeded")] * 2
        assert ["this turn" in own[0].text, "this run" in own[1].text] == [True, True]
    client.patch(f"/v1/sessions/{poor}", json={"budget": {"tokens": 1_000_000}})
    assert ask(client, poor).status_code == 202


def test_an_agent_s_servers_are_not_asked_before_its_turn_is_accepted(make_stage: MakeStage) -> None:
    remote = Agent("default", backend=None, mcp_servers=(McpServer("far", url="http://127.0.0.1:9/mcp"),))
    client = create_app(make_stage(agents=(remote,)).service).test_client()
    assert [ask(client, budget={"tokens": most}).status_code for most in (10, 100)] == [429, 202]


NAMELESS = ModelChoice("anthropic", "nobody-knows-its-price")


@pytest.mark.cases("rules", [{}, {"model": "claude-sonnet-4-5", "provider": "anthropic"}])
@pytest.mark.cases("llm", [NAMELESS, ModelChoice("anthropic", "claude-haiku-4-5", fallbacks=(NAMELESS,))])
def test_a_budget_in_usd_needs_models_with_prices(make_stage: MakeStage, rules: Any, llm: ModelChoice) -> None:
    nameless = Agent("default", backend=None, llm=llm)
    client = create_app(make_stage(agents=(nameless,)).service).test_client()
    change(client, **rules)
    answer = ask(client, budget={"usd": 1})
    if rules and not llm.fallbacks:
        assert answer.status_code == 202
    else:
        assert problem(answer) == (422, "model-without-price")
        assert ask(client, budget={"tokens": 100_000}).status_code == 202


def test_a_disabled_workspace_accepts_nothing_stops_what_runs_and_goes_on_when_it_is_enabled(
    client: FlaskClient, stage: WebStage
) -> None:
    running, waiting = ask(client).get_json(), ask(client).get_json()
    stage.worker.start(running["id"])
    assert change(client, disabled=True).get_json()["disabled"] is True
    assert problem(ask(client)) == (403, "workspace-disabled")
    assert stage.worker.heed(running["id"]).reason == "interrupt"
    assert client.get(f"/v1/turns/{waiting['id']}").get_json()["status"] == "queued"
    assert change(client, disabled=False).get_json()["disabled"] is False
    assert ask(client).status_code == 202


def test_what_was_spent_is_summed_by_purpose_and_restricted(client: FlaskClient, stage: WebStage) -> None:
    for session in ("s1", "s2"):
        stage.worker.finish(ask(client, session).get_json()["id"])

    def summed(query: str) -> dict[str, int]:
        return {row["key"]: row["turns"] for row in client.get(f"/v1/usage?{query}").get_json()["data"]}

    assert summed("group_by=session") == {"s1": 1, "s2": 1}
    assert summed("group_by=session&session=s2") == {"s2": 1}
    assert summed("group_by=kind") == {"turn": 2}
    assert summed("kind=summary") == {}
    assert summed("group_by=agent&since=2099-01-01T00:00:00Z") == {}


@pytest.mark.cases(
    ("rules", "pointer"),
    [
        ({"tools": {"allow": "sql_*"}}, "/tools/allow"),
        ({"tools": {"only": []}}, "/tools"),
        ({"provider": "elsewhere"}, "/provider"),
        ({"model": ""}, "/model"),
        ({"colour": "red"}, ""),
        ({"budget": {"usd": -1}}, "/budget/usd"),
        ({"retention": 0}, "/retention"),
        ({"retention": {}}, "/retention/days"),
        ({"retention": {"days": 4000}}, "/retention/days"),
        ({"retention": True}, "/retention"),
    ],
)
def test_rules_that_cannot_be_meant_are_refused(client: FlaskClient, rules: Any, pointer: str) -> None:
    answer = change(client, **rules)
    assert answer.status_code == 422
    assert answer.get_json()["errors"][0]["pointer"].startswith(pointer)


def test_rules_are_shown_as_they_were_set_and_null_clears_them(client: FlaskClient) -> None:
    rules = {"tools": {"allow": ["sql_*"], "deny": ["*_write"]}, "skills": {"deny": ["x"]}, "model": "m1"}
    shown = change(client, **rules).get_json()
    assert {name: shown[name] for name in rules} == rules
    cleared = change(client, **dict.fromkeys(rules)).get_json()
    assert {name: cleared[name] for name in rules} == dict.fromkeys(rules)


@pytest.mark.parametrize("retention", [30, 30.0, {"days": 30}])
def test_retention_is_a_number_of_days_alone_or_named(client: FlaskClient, retention: Any) -> None:
    assert change(client, retention=retention).get_json()["retention"] == {"days": 30}
    assert client.get("/v1/workspaces/default").get_json()["retention"] == {"days": 30}
    assert change(client, retention=None).get_json()["retention"] is None


RULES = ("tools", "skills", "model", "provider", "budget", "guardrails", "disabled", "retention")


@pytest.mark.cases("name", RULES)
def test_a_workspace_has_every_rule_that_clients_can_set(client: FlaskClient, name: str) -> None:
    value = client.get("/v1/workspaces/default").get_json()[name]
    assert change(client, **{name: value}).status_code == 200


def test_no_other_workspace_is_within_reach(client: FlaskClient) -> None:
    assert client.get("/v1/workspaces/other").status_code == 404
    assert client.patch("/v1/workspaces/other", json={"disabled": True}).status_code == 404
