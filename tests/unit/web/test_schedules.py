from typing import Any

import pytest
from flask.testing import FlaskClient

from loom_worker.core.cron import plan_of
from loom_worker.core.values.schedules import Schedule
from tests.support.runs import pipeline, workflow
from tests.support.web_stage import WebStage

URL = "/v1/schedules/workflow:two"


@pytest.fixture(autouse=True)
def _scheduled(stage: WebStage) -> None:
    schedule = Schedule("workflow", "two", plan_of("0 9 * * *", "Europe/Berlin"), max_execution_s=60.0)
    stage.workflows["two"] = workflow(pipeline("One", "Two"), "two", schedule=schedule)


def test_a_schedule_is_listed_with_its_plan_and_what_came_of_it(client: FlaskClient) -> None:
    page = client.get("/v1/schedules").get_json()
    [found] = page["data"]
    assert (found["name"], found["kind"], found["target"]) == ("workflow:two", "workflow", "two")
    assert (found["cron"], found["timezone"], found["enabled"]) == ("0 9 * * *", "Europe/Berlin", True)
    assert found["next_at"] is not None
    assert (found["last_id"], found["skipped"], found["missed"]) == (None, 0, 0)


def test_an_operator_disables_one_until_the_files_word_counts_again(client: FlaskClient) -> None:
    off = client.patch(URL, json={"enabled": False}).get_json()
    assert (off["enabled"], off["enabled_by"], off["next_at"]) == (False, "operator", None)
    assert client.get("/v1/schedules").get_json()["data"][0]["enabled"] is False
    assert client.patch(URL, json={"enabled": None}).get_json()["enabled_by"] == "file"


def test_one_is_started_beside_its_plan(client: FlaskClient) -> None:
    answer = client.post(f"{URL}/run")
    assert answer.status_code == 202
    run = answer.get_json()
    assert (run["object"], run["workflow"], run["metadata"]["schedule"]) == ("run", "two", "workflow:two")
    assert answer.headers["Location"] == f"/v1/runs/{run['id']}"
    [found] = client.get("/v1/schedules").get_json()["data"]
    assert (found["last_id"], found["last_status"], found["last_at"]) == (run["id"], "in_progress", None)
    kinds = {row["kind"] for row in client.get("/v1/audit").get_json()["data"]}
    assert "schedule.started" in kinds


@pytest.mark.cases(
    ("method", "url", "body", "status"),
    [
        ("PATCH", "/v1/schedules/workflow:too", {"enabled": True}, 404),
        ("PATCH", URL, {}, 422),
        ("PATCH", URL, {"enabled": "yes"}, 422),
        ("PATCH", URL, {"enabled": True, "cron": "* * * * *"}, 422),
        ("POST", "/v1/schedules/workflow:too/run", None, 404),
        ("POST", f"/v1/schedules/{'x' * 300}/run", None, 404),
        ("POST", "/v1/schedules/a%00b/run", None, 404),
        ("POST", f"{URL}/run", {"input": "no"}, 422),
    ],
)
def test_what_cannot_be_done_is_refused(client: FlaskClient, method: str, url: str, body: Any, status: int) -> None:
    assert client.open(url, method=method, json=body).status_code == status
