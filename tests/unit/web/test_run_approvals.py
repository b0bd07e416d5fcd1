"""A person decides on the output of a stage."""

from typing import Any

import pytest

from tests.unit.web.flow import Flow, refused


def test_a_run_that_asks_a_person_shows_what_about_and_until_when(flow: Flow, asking_run: str) -> None:
    run = flow.get(asking_run)
    assert run["status"] == "requires_action"
    approval = run["stages"][-1]
    assert (approval["id"], approval["role"], approval["agent_id"], approval["status"]) == (
        "stages.0.approval",
        "approval",
        "default",
        "requires_action",
    )
    assert (approval["prompt"], approval["turn_id"], approval["decision"]) == ("Good? a draft", None, None)
    assert approval["approve_by"] > approval["created_at"]


@pytest.mark.parametrize("named", ["stages.0", "stages.0.approval"])
def test_an_approved_output_goes_to_the_next_stage(flow: Flow, asking_run: str, named: str) -> None:
    answer = flow.decide(asking_run, "approve", named, reason="Nice.")
    run = answer.get_json()
    assert (answer.status_code, run["status"]) == (200, "in_progress")
    assert (run["stages"][1]["decision"], run["stages"][1]["comment"]) == ("approve", "Nice.")
    turn = flow.client.get(f"/v1/turns/{run['stages'][-1]['turn_id']}").get_json()
    assert turn["input"] == "Publish: a draft"


def test_a_rejected_output_ends_the_run_with_the_reason(flow: Flow, asking_run: str) -> None:
    run = flow.decide(asking_run, "reject", reason="Too long.").get_json()
    assert (run["status"], run["reason"], run["merged_output"]) == ("failed", "rejected", "a draft")
    assert "Too long." in run["error"]["message"]
    again = flow.client.post(f"/v1/runs/{asking_run}/retry").get_json()
    assert [(stage["id"], stage["reused"]) for stage in again["stages"]] == [("stages.0", False)]


def test_a_revised_stage_is_told_what_to_change_and_is_looked_at_again(flow: Flow, asking_run: str) -> None:
    run = flow.decide(asking_run, "revise", reason="Shorter.").get_json()
    revision = run["stages"][-1]
    assert (revision["id"], revision["session_id"]) == ("stages.0.revision.1", run["stages"][0]["session_id"])
    assert "Shorter." in flow.client.get(f"/v1/turns/{revision['turn_id']}").get_json()["input"]
    flow.answer(asking_run, "short")
    asked = flow.get(asking_run)["stages"][-1]
    assert (asked["id"], asked["prompt"]) == ("stages.0.approval.2", "Good? short")
    # By the stage's own name it is always the last question that is meant.
    assert flow.decide(asking_run, "approve", "stages.0.approval").status_code == 409
    assert flow.decide(asking_run, "approve", "stages.0").status_code == 200
    flow.answer(asking_run, "out")
    assert flow.get(asking_run)["merged_output"] == "out"


@pytest.mark.parametrize("first", ["approve", "reject"])
def test_an_output_is_decided_on_once(flow: Flow, asking_run: str, first: str) -> None:
    flow.decide(asking_run, first)
    before = flow.get(asking_run)
    answer = flow.decide(asking_run, "approve")
    assert (answer.status_code, answer.get_json()["type"]) == (409, "/problems/already-decided")
    assert flow.get(asking_run) == before


@pytest.mark.parametrize("named", ["stages.1", "draft.approval", "none", "a b", "%00", "é"])
def test_what_nobody_is_asked_about_is_not_found(flow: Flow, asking_run: str, named: str) -> None:
    assert flow.decide(asking_run, "approve", named).status_code == 404


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"decision": "maybe"}, "/decision"),
        ({"decision": "revise"}, "/reason"),
        ({"decision": "revise", "reason": ""}, "/reason"),
        ({"decision": "reject", "reason": "x" * 4001}, "/reason"),
        ({"decision": "approve", "who": "me"}, "/who"),
    ],
)
def test_a_decision_that_says_something_else_is_refused_and_decides_nothing(
    flow: Flow, asking_run: str, body: dict[str, Any], pointer: str
) -> None:
    refused(flow.decide(asking_run, **body), pointer)
    assert flow.get(asking_run)["status"] == "requires_action"


def test_a_decision_needs_a_body(flow: Flow, asking_run: str) -> None:
    assert flow.client.post(f"/v1/runs/{asking_run}/approvals/stages.0").status_code == 415


def test_a_decision_is_in_the_audit_with_who_made_it(flow: Flow, asking_run: str) -> None:
    flow.decide(asking_run, "approve")
    (entry,) = flow.client.get("/v1/audit?kind=run.decided").get_json()["data"]
    assert (entry["subject"], entry["decisions"]) == (
        asking_run,
        [{"kind": "approval", "name": "stages.0.approval", "outcome": "approve"}],
    )


def test_what_a_person_says_to_an_output_passes_the_rules_for_input(flow: Flow, asking_run: str) -> None:
    rules = {"card": "block", "secret": "redact"}
    flow.client.patch("/v1/workspaces/default", json={"guardrails": {"input": rules}})
    refused(flow.decide(asking_run, "revise", reason="Use 4111 1111 1111 1111."), "/reason")
    key = "sk-ant-api03-" + "a" * 40
    assert flow.decide(asking_run, "revise", reason=f"Use {key}.").status_code == 200
    assert key not in flow.client.get(f"/v1/runs/{asking_run}").text
