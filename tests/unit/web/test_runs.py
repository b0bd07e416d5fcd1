"""Runs are started, looked at and listed; every answer is held against the OpenAPI document."""

import time
from dataclasses import replace

import pytest

from loom_worker.core.values.agents import ModelChoice
from loom_worker.core.values.api_keys import ALL_SCOPES, KeyHolder, NewKey
from loom_worker.core.values.calls import Call
from loom_worker.core.values.guardrails import Guardrails
from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.json import Json
from tests.support.runs import pipeline, workflow
from tests.support.until import AT_ONCE_S
from tests.support.web_stage import AGENT, Live, MakeStage, WebStage, answered
from tests.unit.web.described import DOCUMENT
from tests.unit.web.flow import TWO, Flow, W, refused
from web.app import create_app


def test_an_accepted_run_tells_where_to_look(flow: Flow) -> None:
    answer = flow.post({"input": "fish", "metadata": {"k": "v"}})
    run = answer.get_json()
    assert answer.status_code == 202
    assert (answer.headers["Location"], answer.headers["Retry-After"]) == (f"/v1/runs/{run['id']}", "1")
    assert (run["object"], run["workflow"], run["pattern_type"], run["status"]) == (
        "run",
        "two",
        "pipeline",
        "in_progress",
    )
    assert (run["variables"], run["metadata"]) == ({"input": "fish"}, {"k": "v"})
    assert flow.get(run["id"])["id"] == run["id"]


def test_the_first_stage_is_a_turn_that_is_woken(flow: Flow) -> None:
    run = flow.start(input="fish")
    (stage,) = run["stages"]
    assert (stage["id"], stage["role"], stage["agent_id"], stage["status"]) == (
        "stages.0",
        "stage",
        "default",
        "queued",
    )
    turn = flow.client.get(f"/v1/turns/{stage['turn_id']}").get_json()
    assert (turn["run_id"], turn["session_id"], turn["input"]) == (run["id"], stage["session_id"], "Look for fish.")
    assert turn["metadata"] == {"workflow": "two", "run_id": run["id"], "stage": "stages.0"}
    assert flow.stage.book.woken == [flow.stage.service.sessions.get(W, turn["session_id"]).lane]


def test_a_run_goes_on_from_stage_to_stage_to_its_result(flow: Flow) -> None:
    run_id = flow.start(input="fish")["id"]
    flow.answer(run_id, "carp", "A carp.")
    run = flow.get(run_id)
    assert (run["status"], run["reason"], run["merged_output"], run["error"]) == ("completed", None, "A carp.", None)
    assert [stage["output_text"] for stage in run["stages"]] == ["carp", "A carp."]
    second = flow.client.get(f"/v1/turns/{run['stages'][1]['turn_id']}").get_json()
    assert second["input"] == "Write about: carp"
    assert [(each["stage"], each["output_text"]) for each in run["agent_results"]] == [
        ("stages.0", "carp"),
        ("stages.1", "A carp."),
    ]
    assert run["usage"]["llm_calls"] == 2
    assert run["cost"] == {"usd": 0.002, "by_agent": {"default": 0.002}}
    assert run["completed_at"] is not None
    assert run["duration_ms"] >= 0


def test_prefer_wait_answers_200_once_the_run_has_ended(live: Live, flow: Flow) -> None:
    asked = live.asked("POST", "/v1/workflows/two/runs", {"input": "x"}, Prefer="wait=30")
    flow.await_waiters(1)
    flow.answer(flow.client.get("/v1/runs").get_json()["data"][0]["id"], "one", "two")
    status, run, headers = answered(asked)
    assert (status, run["merged_output"]) == (200, "two")
    assert headers["Preference-Applied"] == "wait=30"
    assert headers["Location"] == f"/v1/runs/{run['id']}"
    assert "Retry-After" not in headers


def test_prefer_wait_answers_202_when_the_time_is_over(flow: Flow) -> None:
    answer = flow.post({"input": "x"}, headers={"Prefer": "wait=0"})
    assert (answer.status_code, answer.headers["Retry-After"]) == (202, "1")


def test_who_waits_is_answered_as_soon_as_a_person_is_asked_about_a_tool_call(live: Live, flow: Flow) -> None:
    run_id = flow.start("gated")["id"]
    asked = live.asked("GET", f"/v1/runs/{run_id}?wait=60")
    flow.await_waiters(1)
    pay = Call("toolu_1", "pay", {}, 0, 1, approval="waiting", approve_by_ms=now_ms() + 60_000)
    flow.stage.worker.ask_person(flow.open_turn(run_id), pay)
    status, run, _ = answered(asked)
    assert (status, run["status"]) == (200, "requires_action")


def test_a_repeated_request_is_the_same_run(flow: Flow) -> None:
    key = {"Idempotency-Key": "k"}
    first = flow.post({"input": "x"}, headers=key).get_json()
    again = flow.post({"input": "x"}, headers=key)
    assert (again.status_code, again.headers["Idempotency-Replayed"]) == (202, "true")
    assert again.get_json()["id"] == first["id"]
    flow.answer(first["id"], "one", "two")
    ended = flow.post({"input": "x"}, headers={**key, "Prefer": "wait=5"})
    assert (ended.status_code, ended.get_json()["merged_output"]) == (200, "two")
    assert len(flow.client.get("/v1/runs").get_json()["data"]) == 1


@pytest.mark.parametrize(("body", "name"), [({"input": "y"}, "two"), ({"input": "x"}, "fork"), ({}, "two")])
def test_a_key_that_came_with_another_request_is_refused(flow: Flow, body: Json, name: str) -> None:
    key = {"Idempotency-Key": "k"}
    assert flow.post({"input": "x"}, headers=key).status_code == 202
    answer = flow.post(body, name, headers=key)
    assert (answer.status_code, answer.get_json()["type"]) == (422, "/problems/idempotency-mismatch")


def test_a_replay_of_what_was_accepted_needs_no_workflow_that_is_still_the_same(flow: Flow) -> None:
    key = {"Idempotency-Key": "k"}
    first = flow.post({"input": "x"}, headers=key).get_json()
    flow.stage.workflows["two"] = workflow(pipeline("{{topic}}"), "two", needed={"topic": 1})
    again = flow.post({"input": "x"}, headers=key)
    assert (again.status_code, again.get_json().get("id")) == (202, first["id"])


@pytest.mark.cases(
    ("body", "pointer"),
    [
        ({"input": "x", "variables": {"input": "y"}}, "/input"),
        ({"input": 7}, "/input"),
        ({"variables": []}, "/variables"),
        ({"variables": {"input": None}}, "/variables/input"),
        ({"variables": {"input": ["x"]}}, "/variables/input"),
        ({"variables": {f"v{n}": "" for n in range(101)}}, "/variables"),
        ({"deadline_s": 0}, "/deadline_s"),
        ({"budget": {"usd": -1}}, "/budget/usd"),
        ({"metadata": {"m": "x" * 17_000}}, "/metadata"),
        ({"agent": "default"}, "/agent"),
    ],
)
def test_a_run_that_says_something_else_is_refused(flow: Flow, body: Json, pointer: str) -> None:
    refused(flow.post(body), pointer)
    assert flow.stage.count() == 0


@pytest.mark.parametrize("name", ["input", "user_query"])
def test_a_workflow_that_does_not_use_the_input_takes_it_all_the_same(flow: Flow, name: str) -> None:
    assert flow.start("fork", variables={name: "x"})["variables"] == {"input": "x"}


@pytest.mark.parametrize("name", ["user_query", "query", "user_input"])
def test_the_input_is_given_once_whatever_it_is_called(flow: Flow, name: str) -> None:
    answer = flow.post({"input": "x", "variables": {name: "y"}})
    assert refused(answer, "/variables/input").count("given twice") == 1


def test_a_run_needs_a_body(flow: Flow) -> None:
    assert flow.client.post("/v1/workflows/two/runs").status_code == 415


def test_a_webhook_that_would_never_be_served_is_refused(flow: Flow) -> None:
    answer = flow.post({"webhook": "http://127.0.0.1:9/x"})
    assert (answer.status_code, answer.get_json()["type"]) == (422, "/problems/webhook-url-refused")


def test_a_budget_in_usd_needs_a_price(make_stage: MakeStage) -> None:
    stage = make_stage(agents=(replace(AGENT, llm=ModelChoice("anthropic", "home-made")),))
    stage.workflows["two"] = workflow(TWO, "two")
    answer = create_app(stage.service).test_client().post("/v1/workflows/two/runs", json={"budget": {"usd": 1}})
    assert (answer.status_code, answer.get_json()["type"]) == (422, "/problems/model-without-price")
    assert stage.count() == 0


def test_answers_have_no_member_that_is_not_described(flow: Flow) -> None:
    schemas = DOCUMENT["components"]["schemas"]
    run_id = flow.start("gated", webhook="https://hooks.example/")["id"]
    flow.answer(run_id, "a draft")
    flow.decide(run_id, "approve")
    flow.answer(run_id, "out")
    run = flow.get(run_id)
    assert run.keys() <= schemas["Run"]["properties"].keys()
    assert {*run["stages"][0], *run["stages"][1]} == schemas["RunStage"]["properties"].keys()
    assert run["agent_results"][0].keys() == schemas["Run"]["properties"]["agent_results"]["items"]["properties"].keys()
    assert flow.client.get("/v1/workflows/two").get_json().keys() == schemas["Workflow"]["properties"].keys()
    (delivery,) = flow.client.get("/v1/deliveries").get_json()["data"]
    assert delivery.keys() == schemas["Delivery"]["properties"].keys()


def test_a_long_poll_returns_as_soon_as_the_run_ends(live: Live, flow: Flow) -> None:
    run_id = flow.start("fork")["id"]
    asked = live.asked("GET", f"/v1/runs/{run_id}?wait=60")
    flow.await_waiters(1)
    flow.answer(run_id, "a", "b")
    assert answered(asked)[1]["status"] == "completed"


def test_a_long_poll_on_an_ended_run_does_not_wait(flow: Flow) -> None:
    run_id = flow.start()["id"]
    flow.answer(run_id, "one", "two")
    began_s = time.monotonic()
    assert flow.get(run_id, "?wait=60")["status"] == "completed"
    assert time.monotonic() - began_s < AT_ONCE_S


def test_a_run_that_is_deleted_while_it_is_waited_for_is_gone(live: Live, flow: Flow) -> None:
    run_id = flow.start()["id"]
    asked = live.asked("GET", f"/v1/runs/{run_id}?wait=60")
    flow.await_waiters(1)
    assert flow.client.delete(f"/v1/runs/{run_id}").status_code == 204
    assert answered(asked)[0] == 404


def test_runs_are_listed_newest_first_and_filtered(flow: Flow) -> None:
    two, gated, fork = (flow.start(name)["id"] for name in ("two", "gated", "fork"))
    flow.answer(two, "one", "two")
    flow.answer(gated, "a draft")

    def listed(query: str = "") -> list[str]:
        return [run["id"] for run in flow.client.get(f"/v1/runs{query}").get_json()["data"]]

    assert listed() == [fork, gated, two]
    assert listed("?workflow=gated") == [gated]
    assert [listed(f"?status={each}") for each in ("completed", "requires_action", "in_progress", "failed")] == [
        [two],
        [gated],
        [fork],
        [],
    ]
    assert listed("?workflow=two&status=in_progress") == []
    assert listed("?limit=2") == [fork, gated]
    assert listed(f"?after={gated}") == [two]


def test_a_run_whose_turn_asks_a_person_is_listed_as_what_it_shows(flow: Flow) -> None:
    run_id = flow.start()["id"]
    pay = Call("toolu_1", "pay", {}, 0, 1, approval="waiting", approve_by_ms=now_ms() + 60_000)
    flow.stage.worker.ask_person(flow.open_turn(run_id), pay)
    assert flow.get(run_id)["status"] == "requires_action"
    for status, found in (("requires_action", [run_id]), ("in_progress", [])):
        listed = flow.client.get(f"/v1/runs?status={status}").get_json()["data"]
        assert [run["id"] for run in listed] == found


def test_a_list_holds_little_of_a_long_output_and_says_where_the_rest_is(flow: Flow) -> None:
    run_id = flow.start()["id"]
    flow.answer(run_id, "x" * 50_000, "y" * 50_000)
    (listed,) = flow.client.get("/v1/runs").get_json()["data"]
    assert len(listed["merged_output"]) < 20_000
    assert (listed["truncated"], listed["url"]) == (True, f"/v1/runs/{run_id}")
    assert flow.get(run_id)["merged_output"] == "y" * 50_000


def test_a_run_whose_first_prompt_a_guardrail_refuses_is_not_accepted(make_stage: MakeStage) -> None:
    stage = make_stage(agents=(replace(AGENT, guardrails=Guardrails.of({"input": {"email": "block"}})),))
    stage.workflows["two"] = workflow(TWO, "two", needed={"input": 1})
    flow = Flow(create_app(stage.service).test_client(), stage)
    answer = flow.post({"input": "maria@example.com"})
    assert (answer.status_code, answer.get_json()["type"]) == (422, "/problems/guardrail-blocked")
    assert "it holds email" in answer.get_json()["detail"]
    assert "maria" not in answer.text
    assert (stage.count(), flow.client.get("/v1/runs").get_json()["data"]) == (0, [])


def keys(stage: WebStage, **users: str | None) -> dict[str, dict[str, str]]:
    """Headers with a key for each user."""
    made = {}
    for name, user in users.items():
        whole = KeyHolder(W, ALL_SCOPES, user)
        _, secret = stage.service.keys.create(whole, NewKey(name, ("chat",), user=user))
        made[name] = {"Authorization": f"Bearer {secret}"}
    return made


def test_a_key_of_a_user_sees_the_runs_of_that_user_alone(flow: Flow) -> None:
    held = keys(flow.stage, maria="maria", john="john", whole=None)
    started = {
        name: flow.client.post("/v1/workflows/two/runs", json={}, headers=headers).get_json()
        for name, headers in held.items()
    }
    assert {name: run["user"] for name, run in started.items()} == {"maria": "maria", "john": "john", "whole": None}

    def listed(name: str) -> set[str]:
        return {run["id"] for run in flow.client.get("/v1/runs", headers=held[name]).get_json()["data"]}

    assert listed("maria") == {started["maria"]["id"]}
    assert listed("john") == {started["john"]["id"]}
    assert listed("whole") == {run["id"] for run in started.values()}
    session = started["maria"]["stages"][0]["session_id"]
    statuses = {
        name: flow.client.get(f"/v1/sessions/{session}", headers=headers).status_code for name, headers in held.items()
    }
    assert statuses == {"maria": 200, "john": 404, "whole": 200}


def test_a_run_can_be_started_for_a_user(flow: Flow) -> None:
    held = keys(flow.stage, maria="maria", whole=None)
    run = flow.client.post("/v1/workflows/two/runs", json={"user": "maria"}, headers=held["whole"]).get_json()
    assert run["user"] == "maria"
    assert flow.client.get(f"/v1/runs/{run['id']}", headers=held["maria"]).status_code == 200


def test_a_key_of_a_user_starts_runs_for_that_user_only(flow: Flow) -> None:
    held = keys(flow.stage, maria="maria")
    answer = flow.client.post("/v1/workflows/two/runs", json={"user": "john"}, headers=held["maria"])
    assert answer.status_code == 403
    same = flow.client.post("/v1/workflows/two/runs", json={"user": "maria"}, headers=held["maria"])
    assert same.status_code == 202
