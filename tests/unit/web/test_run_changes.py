"""Runs are cancelled, done again and deleted."""

import pytest
from sqlalchemy import update

from loom_worker.core.values.json import Json
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.tables import workflow_runs
from tests.unit.web.flow import Flow, read
from tests.unit.web.test_events import frames


def test_a_cancelled_run_that_nobody_works_on_ends_at_once(flow: Flow) -> None:
    run_id = flow.start("fork")["id"]
    answer = flow.client.post(f"/v1/runs/{run_id}/cancel", json={"action": "interrupt"})
    assert (answer.status_code, answer.headers["Location"]) == (202, f"/v1/runs/{run_id}")
    assert "Retry-After" not in answer.headers
    run = answer.get_json()
    assert (run["status"], run["reason"], run["cancel"]) == ("cancelled", "interrupt", "interrupt")
    assert [stage["status"] for stage in run["stages"]] == ["cancelled", "cancelled"]
    for stage in run["stages"]:
        assert flow.client.get(f"/v1/turns/{stage['turn_id']}").get_json()["status"] == "cancelled"
        events = frames(flow.client.get(f"/v1/turns/{stage['turn_id']}/events").text)
        assert events[-1][1] == "turn.cancelled"
    assert read(flow, run_id)[-1][1] == "run.cancelled"


def test_a_cancelled_run_that_is_worked_on_ends_with_its_turns(flow: Flow) -> None:
    run_id = flow.start()["id"]
    turn_id = flow.open_turn(run_id)
    flow.stage.worker.start(turn_id)
    answer = flow.client.post(f"/v1/runs/{run_id}/cancel")
    assert (answer.status_code, answer.headers["Retry-After"]) == (202, "1")
    assert (answer.get_json()["status"], answer.get_json()["cancel"]) == ("in_progress", "interrupt")
    again = flow.client.post(f"/v1/runs/{run_id}/cancel", json={})
    assert (again.status_code, again.get_json()["status"]) == (202, "in_progress")
    flow.stage.worker.heed(turn_id)
    flow.stage.service.runs.turn_ended(run_id)
    assert flow.get(run_id)["status"] == "cancelled"


def test_a_run_that_waits_for_a_person_is_cancelled_and_asks_nobody(flow: Flow) -> None:
    run_id = flow.start("gated")["id"]
    flow.answer(run_id, "a draft")
    run = flow.client.post(f"/v1/runs/{run_id}/cancel").get_json()
    assert (run["status"], [stage["status"] for stage in run["stages"]]) == ("cancelled", ["completed", "cancelled"])
    assert flow.decide(run_id, "approve").get_json()["type"] == "/problems/already-decided"


def test_a_cancel_of_an_ended_run_changes_nothing(flow: Flow, ended_run: str) -> None:
    before = flow.get(ended_run)
    answer = flow.client.post(f"/v1/runs/{ended_run}/cancel")
    assert (answer.status_code, answer.get_json()) == (202, before)
    assert "Retry-After" not in answer.headers


@pytest.mark.parametrize("body", [{"action": "rollback"}, {"action": None}, {"reason": "x"}])
def test_a_cancel_that_says_something_else_is_refused_and_cancels_nothing(flow: Flow, body: Json) -> None:
    run_id = flow.start()["id"]
    assert flow.client.post(f"/v1/runs/{run_id}/cancel", json=body).status_code == 422
    assert flow.get(run_id)["cancel"] is None


def test_a_stage_whose_turn_is_cancelled_by_itself_ends_its_run(flow: Flow) -> None:
    run_id = flow.start()["id"]
    flow.client.post(f"/v1/turns/{flow.open_turn(run_id)}/cancel")
    run = flow.get(run_id)
    assert (run["status"], run["error"]["stage"]) == ("failed", "stages.0")


def test_a_retry_takes_over_what_is_completed(flow: Flow) -> None:
    failed_id = flow.start(input="fish", metadata={"k": "v"})["id"]
    flow.answer(failed_id, "carp")
    flow.fail(failed_id)
    failed = flow.get(failed_id)
    assert (failed["status"], failed["error"]["stage"]) == ("failed", "stages.1")
    answer = flow.client.post(f"/v1/runs/{failed_id}/retry")
    run = answer.get_json()
    assert (answer.status_code, answer.headers["Location"]) == (202, f"/v1/runs/{run['id']}")
    assert (run["retry_of"], run["metadata"], run["variables"]) == (failed_id, {"k": "v"}, {"input": "fish"})
    assert [(stage["id"], stage["reused"], stage["status"]) for stage in run["stages"]] == [
        ("stages.0", True, "completed"),
        ("stages.1", False, "queued"),
    ]
    assert run["stages"][0]["turn_id"] == failed["stages"][0]["turn_id"]
    flow.answer(run["id"], "A carp.")
    whole = flow.get(run["id"])
    assert (whole["status"], whole["merged_output"]) == ("completed", "A carp.")
    assert whole["usage"]["llm_calls"] == 1  # the first stage was paid with the run before
    assert flow.get(failed_id) == failed


@pytest.mark.parametrize("name", ["cancel", "deadline"])
def test_a_retry_of_what_was_stopped_takes_over_what_is_completed_too(flow: Flow, name: str) -> None:
    run_id = flow.start(input="fish", deadline_s=60)["id"]
    if name == "cancel":
        flow.answer(run_id, "carp")
        flow.client.post(f"/v1/runs/{run_id}/cancel")
    else:
        with flow.stage.database.write(lock=WHOLE) as tx:
            tx.execute(update(workflow_runs).values(created_ms=1, deadline_ms=60_001))
        flow.answer(run_id, "carp")
    assert flow.get(run_id)["status"] in ("cancelled", "failed")
    run = flow.client.post(f"/v1/runs/{run_id}/retry").get_json()
    assert [(stage["id"], stage["reused"]) for stage in run["stages"]] == [("stages.0", True), ("stages.1", False)]


def test_a_retry_with_the_same_key_is_the_same_run(flow: Flow) -> None:
    run_id = flow.start()["id"]
    flow.fail(run_id)
    url, key = f"/v1/runs/{run_id}/retry", {"Idempotency-Key": "k"}
    first, again = flow.client.post(url, headers=key), flow.client.post(url, headers=key)
    assert first.get_json()["id"] == again.get_json()["id"]
    assert ("Idempotency-Replayed" in first.headers, again.headers["Idempotency-Replayed"]) == (False, "true")
    assert flow.post({"input": "x"}, headers=key).get_json()["type"] == "/problems/idempotency-mismatch"


def test_only_what_did_not_succeed_is_done_again(flow: Flow, ended_run: str) -> None:
    for run_id in (ended_run, flow.start()["id"]):
        answer = flow.client.post(f"/v1/runs/{run_id}/retry")
        assert (answer.status_code, answer.get_json()["type"]) == (409, "/problems/not-retryable")
    assert flow.client.post(f"/v1/runs/{ended_run}/retry", json={"from": "stages.0"}).status_code == 422


def test_a_deleted_run_takes_its_sessions_with_it(flow: Flow, ended_run: str) -> None:
    stages = [stage for stage in flow.get(ended_run)["stages"] if stage["turn_id"]]
    other = flow.start()["id"]
    assert flow.client.delete(f"/v1/runs/{ended_run}").status_code == 204
    assert flow.client.get(f"/v1/runs/{ended_run}").status_code == 404
    assert flow.client.delete(f"/v1/runs/{ended_run}").status_code == 404
    for stage in stages:
        assert flow.client.get(f"/v1/sessions/{stage['session_id']}").status_code == 404
        assert flow.client.get(f"/v1/turns/{stage['turn_id']}").status_code == 404
    assert flow.get(other)["status"] == "in_progress"


def test_a_run_is_deleted_while_it_goes_on(flow: Flow) -> None:
    run_id = flow.start("fork")["id"]
    turn_id = flow.open_turn(run_id)
    flow.stage.worker.start(turn_id)
    assert flow.client.delete(f"/v1/runs/{run_id}").status_code == 204
    assert flow.client.get(f"/v1/turns/{turn_id}").status_code == 404
    flow.stage.service.runs.turn_ended(run_id)
    assert flow.client.get("/v1/runs").get_json()["data"] == []
    assert flow.client.get("/v1/sessions").get_json()["data"] == []


def test_a_deleted_retry_leaves_the_sessions_of_what_it_took_over(flow: Flow) -> None:
    failed_id = flow.start()["id"]
    flow.answer(failed_id, "carp")
    flow.fail(failed_id)
    retry = flow.client.post(f"/v1/runs/{failed_id}/retry").get_json()
    taken_over, own = (stage["session_id"] for stage in retry["stages"])
    assert flow.client.delete(f"/v1/runs/{retry['id']}").status_code == 204
    assert flow.client.get(f"/v1/sessions/{taken_over}").status_code == 200
    assert flow.client.get(f"/v1/sessions/{own}").status_code == 404
    assert flow.client.delete(f"/v1/runs/{failed_id}").status_code == 204
    assert flow.client.get("/v1/sessions").get_json()["data"] == []
