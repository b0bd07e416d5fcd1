"""Schedules on a real database and a real Valkey; real processes begin what is due, and are killed meanwhile."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import redis
from sqlalchemy import func, select

from loom_worker.core.cron import plan_of
from loom_worker.core.errors import NotFound
from loom_worker.core.settings import Settings
from loom_worker.core.values.agents import Agent
from loom_worker.core.values.audit import AuditFilter
from loom_worker.core.values.json import Json
from loom_worker.core.values.runs import Run
from loom_worker.core.values.schedules import Schedule
from loom_worker.core.values.tenants import Actor, Tenant, WorkspaceUser
from loom_worker.core.values.turns import Turn
from loom_worker.service.schedules import Schedules
from loom_worker.store.database import Database
from loom_worker.store.schema import turns
from loom_worker.store.workspaces import Workspaces
from tests.support.at_once import at_once
from tests.support.runs import pipeline, workflow
from tests.support.valkey import Valkey
from tests.support.web_stage import WebStage, stages

W, HOUR_MS = "default", 3_600_000
NOON = int(datetime.fromisoformat("2026-11-26T12:00Z").timestamp() * 1000)
ROOT = Path(__file__).parents[3]
HOURLY = plan_of("0 * * * *", "UTC")
FLOW = Schedule("workflow", "two", HOURLY, max_execution_s=90.0)
ANNA = Schedule("agent", "anna", HOURLY, input="What is new?", session_mode="persistent")


@pytest.fixture
def stage(settings: Settings, valkey: redis.Redis) -> Iterator[WebStage]:
    with stages(settings, valkey) as make:
        yield make(agents=(Agent("default"), Agent("anna", schedules=(ANNA,))))


@pytest.fixture
def schedules(stage: WebStage) -> Schedules:
    stage.workflows["two"] = workflow(pipeline("One", "Two"), "two", schedule=FLOW)
    return stage.service.schedules


def shown(schedules: Schedules, name: str, moment_ms: int = NOON) -> Json:
    [found] = [each for each in schedules.listed(W, moment_ms=moment_ms) if each["name"] == name]
    return found


def count(database: Database) -> int:
    with database.read() as tx:
        return int(tx.execute(select(func.count()).select_from(turns)).scalar_one())


def test_a_due_time_begins_a_run_and_a_turn_once(stage: WebStage, schedules: Schedules) -> None:
    assert schedules.fire_due(NOON - 1) == 0
    assert schedules.fire_due(NOON) == 2
    assert schedules.fire_due(NOON) == 0
    flow = shown(schedules, "workflow:two")
    assert (flow["last_at"], flow["next_at"]) == ("2026-11-26T12:00:00.000Z", "2026-11-26T13:00:00.000Z")
    assert flow["last_status"] == "in_progress"
    run = stage.service.runs.run(W, flow["last_id"])
    assert run.metadata == {"schedule": "workflow:two", "due_at": "2026-11-26T12:00:00.000Z"}
    assert run.deadline_ms is not None
    assert run.deadline_ms - run.created_ms == 90_000
    turn = stage.service.turn(W, shown(schedules, "agent:anna")["last_id"])
    assert (turn.input, turn.agent) == ("What is new?", "anna")
    assert turn.trace_id is not None
    assert run.trace_id not in (None, turn.trace_id)


def test_a_persistent_session_goes_on_and_a_new_one_does_not(stage: WebStage, schedules: Schedules) -> None:
    schedules.fire_due(NOON - 1)
    schedules.fire_due(NOON)
    schedules.fire_due(NOON + HOUR_MS)
    assert ANNA.session_id(1) == ANNA.session_id(2)
    assert replace(ANNA, session_mode="new").session_id(1) != replace(ANNA, session_mode="new").session_id(2)
    of_anna = [turn for turn in stage.service.turns(W, limit=10, after=None).items if turn.agent == "anna"]
    assert {turn.session_id for turn in of_anna} == {ANNA.session_id(0)}
    assert len(of_anna) == 2


def test_a_run_that_has_not_ended_makes_the_next_time_a_skipped_one(stage: WebStage, schedules: Schedules) -> None:
    patient = replace(FLOW, skips_if_running=True)
    stage.workflows["two"] = replace(stage.workflows["two"], schedule=patient)
    schedules.fire_due(NOON - 1)
    schedules.fire_due(NOON)
    begun = shown(schedules, "workflow:two")["last_id"]
    schedules.fire_due(NOON + HOUR_MS)
    assert shown(schedules, "workflow:two")["skipped"] == 1
    assert shown(schedules, "workflow:two")["last_id"] == begun
    stage.service.runs.cancel(W, begun)
    schedules.fire_due(NOON + 2 * HOUR_MS)
    assert shown(schedules, "workflow:two")["last_id"] != begun


def test_a_refused_start_is_shown_and_not_tried_again(
    stage: WebStage, schedules: Schedules, database: Database
) -> None:
    schedules.fire_due(NOON - 1)
    Workspaces(database).patch(W, {"disabled": True}, now_ms=NOON)
    assert schedules.fire_due(NOON) == 0
    assert "is disabled" in shown(schedules, "workflow:two")["last_error"]
    Workspaces(database).patch(W, {"disabled": None}, now_ms=NOON)
    assert schedules.fire_due(NOON + 1) == 0
    assert schedules.fire_due(NOON + HOUR_MS) == 2
    assert shown(schedules, "workflow:two")["last_error"] is None


def test_an_operators_word_overrides_the_file_until_it_is_taken_back(
    stage: WebStage, schedules: Schedules, database: Database
) -> None:
    schedules.fire_due(NOON - 1)
    changed = schedules.enable(W, "workflow:two", False, by=Actor("key_1"))
    assert (changed["enabled"], changed["enabled_by"], changed["next_at"]) == (False, "operator", None)
    assert schedules.fire_due(NOON) == 1  # the agent's
    assert schedules.enable(W, "workflow:two", None)["enabled"] is True
    rows = stage.service.audit.page(W, AuditFilter(), limit=10, after=None).items
    assert {row.entry.action for row in rows} >= {"schedule.changed"}
    assert "key_1" in {row.entry.key_id for row in rows}


def test_a_start_beside_the_plan_leaves_the_plan_alone(stage: WebStage, schedules: Schedules) -> None:
    schedules.fire_due(NOON - 1)
    begun, turn = schedules.start(W, "workflow:two"), schedules.start(W, "agent:anna")
    assert isinstance(begun, Run)
    assert isinstance(turn, Turn)
    found = shown(schedules, "workflow:two")
    assert (found["last_id"], found["last_at"]) == (begun.id, None)
    assert schedules.fire_due(NOON) == 2


@pytest.mark.parametrize("tenant", ["other", WorkspaceUser(W, "maria")])
def test_other_workspaces_and_single_users_have_no_such_schedule(schedules: Schedules, tenant: Tenant) -> None:
    assert schedules.listed(tenant) == ()
    with pytest.raises(NotFound):
        schedules.start(tenant, "workflow:two")
    with pytest.raises(NotFound):
        schedules.enable(tenant, "workflow:two", False)


def test_a_name_that_is_none_is_told_with_the_one_that_was_meant(schedules: Schedules) -> None:
    with pytest.raises(NotFound, match="Did you mean 'workflow:two'"):
        schedules.enable(W, "workflow:too", True)


def test_threads_that_look_at_a_time_begin_a_due_time_once(schedules: Schedules, database: Database) -> None:
    schedules.fire_due(NOON - 1)
    assert sum(at_once(lambda _: schedules.fire_due(NOON), range(4))) == 2
    assert count(database) == 2


AGENT = """\
kind: Agent
apiVersion: loom/v1
metadata: {name: anna}
spec:
  schedules:
    - {name: hourly, cron: "0 * * * *", input: What is new?}
"""


class Processes:
    """Processes that begin what is due."""

    def __init__(self, home: Path, server: Valkey) -> None:
        (home / "agents").mkdir()
        (home / "agents" / "anna.yaml").write_text(AGENT)
        self.env = {**os.environ, "LOOM_HOME": str(home), "LOOM_REDIS_URL": server.url}
        self.env |= {"LOOM_AGENTS_DIR": str(home / "agents")}

    def begin(self, *moments_ms: int, **more: str) -> subprocess.Popen[Any]:
        command = [sys.executable, "-m", "tests.support.schedule_process", *map(str, moments_ms)]
        return subprocess.Popen(command, env={**self.env, **more}, cwd=ROOT)

    def run(self, *moments_ms: int, **more: str) -> int:
        return self.begin(*moments_ms, **more).wait(timeout=60)


@pytest.fixture
def processes(settings: Settings, valkey: redis.Redis, valkey_server: Valkey) -> Processes:
    return Processes(settings.home, valkey_server)


@pytest.mark.heavy
@pytest.mark.parametrize(("point", "left"), [("schedule.claiming", 0), ("schedule.claimed", 0), ("schedule.begun", 1)])
def test_a_process_that_is_killed_leaves_a_due_time_begun_once(
    processes: Processes, database: Database, point: str, left: int
) -> None:
    assert processes.run(NOON - 1, NOON, LOOM_CRASHPOINTS=point) == -signal.SIGKILL
    assert count(database) == left
    assert processes.run(NOON + 1) == 0
    assert count(database) == 1


@pytest.mark.heavy
def test_processes_that_look_at_a_time_begin_a_due_time_once(processes: Processes, database: Database) -> None:
    assert processes.run(NOON - 1) == 0
    both = [processes.begin(NOON), processes.begin(NOON)]
    assert [each.wait(timeout=60) for each in both] == [0, 0]
    assert count(database) == 1
