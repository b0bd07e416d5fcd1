"""Schedules of files that are written while Loom runs: due ones begin by themselves, others when somebody says so."""

import json
from pathlib import Path

import pytest

from tests.support.messages_server import MessagesServer, Say
from tests.support.system import Json, System
from tests.support.until import until

pytestmark = [pytest.mark.journey, pytest.mark.takes(40)]

DUE_S = 100.0
"""A minute until the next due time, and as long as a loaded machine may take besides."""


def scheduled(system: System, name: str, schedule: Json) -> str:
    """Write a workflow with a schedule, and wait until it is there; the schedule's name."""
    stages = [{"agent_id": "maker", "prompt_template": "Go"}]
    document = {
        "apiVersion": "loom/v1",
        "kind": "Workflow",
        "metadata": {"name": name},
        "spec": {"type": "pipeline", "initial_prompt": name, "stages": stages},
        "schedule": schedule,
    }
    folder = Path(system.environ["LOOM_WORKFLOWS_DIR"])
    draft = folder / f".{name}.draft"
    draft.write_text(json.dumps(document))
    draft.rename(folder / f"{name}.yaml")
    until(lambda: found(system, f"workflow:{name}"), 20, f"the schedule of {name} is read")
    return f"workflow:{name}"


def found(system: System, name: str) -> Json | None:
    listed: list[Json] = system.get("/v1/schedules").json["data"]
    return next((each for each in listed if each["name"] == name), None)


def runs_of(system: System, workflow: str) -> list[Json]:
    listed: list[Json] = system.get(f"/v1/runs?workflow={workflow}").json["data"]
    return listed


@pytest.mark.heavy
def test_what_is_due_begins_once_by_itself_and_not_any_more_once_it_is_disabled(
    server: MessagesServer, system: System
) -> None:
    server.then(Say("Done."))
    name = scheduled(system, "every-minute", {"cron": "* * * * *", "timezone": "Europe/Berlin"})
    until(lambda: runs_of(system, "every-minute"), DUE_S, "the next minute has begun")
    assert system.patch(f"/v1/schedules/{name}", {"enabled": False}).status == 200
    (run,) = runs_of(system, "every-minute")
    assert run["metadata"]["schedule"] == name
    schedule = found(system, name)
    assert schedule is not None
    assert (schedule["last_id"], schedule["enabled"], schedule["next_at"]) == (run["id"], False, None)
    assert system.get(f"/v1/runs/{run['id']}?wait=30").json["status"] == "completed"


def test_an_operator_starts_a_schedule_beside_its_plan(server: MessagesServer, system: System) -> None:
    server.then(Say("Done."))
    name = scheduled(system, "new-year", {"cron": "0 0 1 1 *", "timezone": "Asia/Tokyo"})
    answer = system.post(f"/v1/schedules/{name}/run")
    assert answer.status == 202
    assert system.get(f"/v1/runs/{answer.json['id']}?wait=30").json["status"] == "completed"
    listed = system.run("schedules").stdout
    assert name in listed
    assert "01-01 00:00" in listed
