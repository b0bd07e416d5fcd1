"""Memory that the stages of a run share, by the tools that their models call."""

import json
from typing import Any

import pytest

from loom_worker.core.errors import ProviderFailed
from loom_worker.core.stopping import Stopping
from loom_worker.core.values.json import Json
from loom_worker.core.values.runs import NewRun
from loom_worker.core.values.sessions import SessionPatch
from loom_worker.core.values.turns import Turn
from loom_worker.store.retention import DAY_MS, OldRuns
from loom_worker.store.runs import Runs
from loom_worker.store.schema import shared_memory as rows
from loom_worker.store.shared_memory import SharedMemory
from loom_worker.tools.registry import Registry
from loom_worker.tools.shared_memory import SharedParts, shared_tools
from tests.support.models import says, wants
from tests.support.runs import pipeline, workflow
from tests.support.stage import WORKSPACE, Stage
from tests.unit.turn.test_children import talking as talking

VOTERS = {"question": "Red or blue?", "agent_ids": ["default", "default"], "judge_agent_id": "default"}
SWARM: Json = {"type": "swarm", **VOTERS}
BRANCHED: Json = {"type": "conditional", "condition_agent_id": "default", "condition_prompt": "Which?"}
DELEGATE = ("delegate", {"agent": "helper", "task": "Look."})


@pytest.fixture(autouse=True)
def sharing(stage: Stage, talking: None) -> None:
    """All agents of the stage have the tools of shared memory, too."""
    shared = shared_tools(SharedParts(SharedMemory(stage.database), Stopping(1.0)))
    stage.registry = Registry((*shared, *stage.registry.permitted()))


def begun(stage: Stage, spec: Json) -> str:
    """The id of a run."""
    return told(stage, stage.runs.accept(WORKSPACE, workflow(spec), NewRun(), now_ms=stage.now_ms)[0])


def told(stage: Stage, step: Any) -> str:
    stage.teller().tell(step)
    return str(step.run.id)


def turns_of(stage: Stage, run_id: str) -> list[Turn]:
    found = Runs(stage.database).get(WORKSPACE, run_id).stages
    return [stage.turns.get(WORKSPACE, str(each.turn_id)) for each in found if not each.is_reused]


def called(stage: Stage, turn: Turn, name: str, namespace: str, *, says_last: str = "VOTE: red", **more: object) -> Any:
    """The value that a turn's one call reads or writes, after which the turn ends; None: it failed."""
    arguments = {"key": "a", "namespace": namespace, **more}
    stage.model.scenes = [wants((f"shared_memory_{name}", arguments)), says(says_last)]
    call = stage.serve(turn, stage.worker("w1")).calls[0]
    return None if call.status == "failed" else json.loads(call.content or "").get("value", "written")


def owners(stage: Stage) -> set[str]:
    with stage.database.read() as tx:
        return {row.owner for row in tx.execute(rows.select())}


def test_what_a_stage_writes_is_read_by_later_stages_and_those_they_ask_and_in_no_other_run(stage: Stage) -> None:
    run, other = begun(stage, pipeline("One", "Two", "Three")), begun(stage, pipeline("One"))
    called(stage, turns_of(stage, run)[-1], "write", "WORKFLOW", value="mine")
    assert called(stage, turns_of(stage, other)[-1], "read", "WORKFLOW") is None
    assert called(stage, turns_of(stage, run)[-1], "read", "WORKFLOW") == "mine"
    stage.model.scenes = [wants(DELEGATE)]
    asker = stage.serve(turns_of(stage, run)[-1], stage.worker("w1"))
    child = stage.turns.get(WORKSPACE, str(asker.calls[0].child_turn_id))
    assert called(stage, child, "read", "WORKFLOW") == "mine"


def test_the_members_of_a_swarm_share_what_its_run_and_other_swarms_do_not_read(stage: Stage) -> None:
    run, other = begun(stage, {**BRANCHED, "branches": {"votes.1": SWARM}}), begun(stage, SWARM)
    called(stage, turns_of(stage, run)[0], "write", "SWARM", says_last="votes.1")
    _, first, second = turns_of(stage, run)
    called(stage, first, "write", "SWARM", value="ours")
    assert called(stage, turns_of(stage, other)[0], "read", "SWARM") is None
    assert called(stage, second, "read", "SWARM", says_last="VOTE: blue") == "ours"
    assert called(stage, turns_of(stage, run)[-1], "read", "SWARM") == "ours"


def test_a_stage_of_no_swarm_has_no_such_memory_and_no_metadata_leads_into_a_run(stage: Stage) -> None:
    run = begun(stage, pipeline("One", "Two"))
    assert called(stage, turns_of(stage, run)[-1], "write", "SWARM", value=1) is None
    called(stage, turns_of(stage, run)[-1], "write", "WORKFLOW", value="secret")
    stranger = stage.submit(session="s1")
    stage.sessions.patch(WORKSPACE, "s1", SessionPatch(metadata={"workflow_id": run}), now_ms=stage.now_ms)
    assert called(stage, stranger, "read", "WORKFLOW") is None


def test_a_retry_goes_on_with_what_the_failed_run_shared_and_each_is_removed_with_its_run(stage: Stage) -> None:
    run = begun(stage, pipeline("One", "Two"))
    called(stage, turns_of(stage, run)[-1], "write", "WORKFLOW", value="kept")
    stage.model.scenes = [[ProviderFailed("The key is not valid.")]]
    stage.serve(turns_of(stage, run)[-1], stage.worker("w1"))
    again = told(stage, stage.runs.retry(WORKSPACE, run, NewRun(), now_ms=stage.now_ms)[0])
    assert called(stage, turns_of(stage, again)[-1], "read", "WORKFLOW") == "kept"
    stage.runs.remove(WORKSPACE, run, now_ms=stage.now_ms)
    assert owners(stage) == {again}
    OldRuns(stage.database, 1).remove_some("", stage.now_ms + 2 * DAY_MS)
    assert owners(stage) == set()
