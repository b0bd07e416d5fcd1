"""Memory that the stages of a run share, by the tools that their models call."""

import json
from typing import Any

import pytest

from loom_worker.core.errors import ProviderFailed
from loom_worker.core.stopping import Stopping
from loom_worker.core.values.calls import Call
from loom_worker.core.values.json import Json
from loom_worker.core.values.runs import NewRun, Run
from loom_worker.core.values.sessions import SessionPatch
from loom_worker.core.values.turns import Turn
from loom_worker.store.agent_messages import AgentMessages
from loom_worker.store.run_removal import DAY_MS, OldRuns
from loom_worker.store.runs import Runs
from loom_worker.store.schema import shared_memory as rows
from loom_worker.store.shared_memory import SharedMemory
from loom_worker.tools.agent_tools import NO_WORKERS, MessageParts, Peers, agent_tools
from loom_worker.tools.registry import Registry
from loom_worker.tools.shared_memory import SharedParts, shared_tools
from tests.support.models import says, wants
from tests.support.runs import pipeline, workflow
from tests.support.stage import WORKSPACE, Stage

SWARM: Json = {"type": "swarm", "question": "Red or blue?", "agent_ids": ["default", "default"]}
TWO_SWARMS: Json = {
    "type": "conditional",
    "condition_agent_id": "default",
    "condition_prompt": "Which?",
    "branches": {"votes.1": SWARM},
}
DELEGATE = ("delegate", {"agent": "helper", "task": "Look."})


@pytest.fixture(autouse=True)
def sharing(stage: Stage) -> None:
    """All agents of the stage have the tools of shared memory, and may ask one more."""
    parts = MessageParts(AgentMessages(stage.database), stage.references, NO_WORKERS, 10_240)
    shared = shared_tools(SharedParts(SharedMemory(stage.database), Stopping(1.0)))
    stage.registry = Registry((*shared, *agent_tools(Peers({"helper": ""}, is_called=False), parts)))


def write(value: object, namespace: str = "WORKFLOW") -> tuple[str, Json]:
    return "shared_memory_write", {"key": "a", "value": value, "namespace": namespace}


def read(namespace: str = "WORKFLOW") -> tuple[str, Json]:
    return "shared_memory_read", {"key": "a", "namespace": namespace}


def begun(stage: Stage, spec: Json) -> Run:
    step, _ = stage.runs.accept(WORKSPACE, workflow(spec), NewRun(), now_ms=stage.now_ms)
    return told(stage, step)


def told(stage: Stage, step: Any) -> Run:
    stage.teller().tell(step)
    run: Run = step.run
    return run


def turns_of(stage: Stage, run: Run) -> list[Turn]:
    found = Runs(stage.database).get(WORKSPACE, run.id).stages
    return [stage.turns.get(WORKSPACE, each.turn_id) for each in found if each.turn_id and not each.is_reused]


def called(stage: Stage, turn: Turn, call: tuple[str, Json], *, last: Any = None) -> Call:
    """How the one call of a turn ended, which ends with it unless ``last`` is what its model does then."""
    stage.model.scenes = [wants(call), last or says("VOTE: red\nCONFIDENCE: 1")]
    return stage.serve(turn, stage.worker("w1")).calls[0]


def value_of(call: Call) -> object:
    return json.loads(call.content or "")["value"] if call.status == "completed" else call.status


def test_what_a_stage_writes_is_read_by_the_stages_behind_it_and_by_those_they_ask_and_in_no_other_run(
    stage: Stage,
) -> None:
    run, other = begun(stage, pipeline("One", "Two", "Three")), begun(stage, pipeline("One"))
    called(stage, turns_of(stage, run)[-1], write("mine"))
    assert value_of(called(stage, turns_of(stage, other)[-1], read())) == "failed"
    assert value_of(called(stage, turns_of(stage, run)[-1], read())) == "mine"
    stage.model.scenes = [wants(DELEGATE)]
    asker = stage.serve(turns_of(stage, run)[-1], stage.worker("w1"))
    child = stage.turns.get(WORKSPACE, str(asker.calls[0].child_turn_id))
    assert value_of(called(stage, child, read())) == "mine"


def test_the_members_of_a_swarm_share_what_its_run_and_other_swarms_do_not_read(stage: Stage) -> None:
    run, other = begun(stage, SWARM), begun(stage, SWARM)
    first, second = turns_of(stage, run)
    called(stage, first, write("ours", "SWARM"))
    assert value_of(called(stage, turns_of(stage, other)[0], read("SWARM"))) == "failed"
    assert value_of(called(stage, second, read("WORKFLOW"), last=says("hm"))) == "failed"
    nested = begun(stage, {**TWO_SWARMS, "branches": {"votes.1": {**SWARM, "judge_agent_id": "default"}}})
    stage.model.scenes = [says("votes.1")]
    stage.serve(turns_of(stage, nested)[-1], stage.worker("w1"))
    _, first, second = turns_of(stage, nested)
    called(stage, first, write("theirs", "SWARM"))
    assert value_of(called(stage, second, read("SWARM"), last=says("VOTE: blue\nCONFIDENCE: 1"))) == "theirs"
    judge = turns_of(stage, nested)[-1]
    assert value_of(called(stage, judge, read("SWARM"))) == "theirs"


def test_a_stage_of_no_swarm_is_told_so_and_metadata_leads_into_no_run(stage: Stage) -> None:
    run = begun(stage, pipeline("One", "Two"))
    assert called(stage, turns_of(stage, run)[-1], write(1, "SWARM")).status == "failed"
    called(stage, turns_of(stage, run)[-1], write("secret"))
    stranger = stage.submit(session="stranger")
    stage.sessions.patch(WORKSPACE, "stranger", SessionPatch(metadata={"workflow_id": run.id}), now_ms=stage.now_ms)
    assert called(stage, stranger, read()).status == "failed"


def test_a_delegated_turn_outside_of_runs_works_in_the_workflow_of_the_session_that_asked(stage: Stage) -> None:
    turn = stage.submit(session="s1")
    stage.sessions.patch(WORKSPACE, "s1", SessionPatch(metadata={"workflow_id": "w1"}), now_ms=stage.now_ms)
    stage.model.scenes = [wants(write("told")), wants(DELEGATE, first_id=2)]
    asker = stage.serve(turn, stage.worker("w1"))
    child = stage.turns.get(WORKSPACE, str(asker.calls[1].child_turn_id))
    assert value_of(called(stage, child, read())) == "told"


def test_a_retry_goes_on_with_what_the_failed_run_shared_and_each_is_removed_with_its_run(stage: Stage) -> None:
    run = begun(stage, pipeline("One", "Two"))
    called(stage, turns_of(stage, run)[-1], write("kept"))
    stage.model.scenes = [[ProviderFailed("The key is not valid.")]]
    stage.serve(turns_of(stage, run)[-1], stage.worker("w1"))
    again = told(stage, stage.runs.retry(WORKSPACE, run.id, NewRun(), now_ms=stage.now_ms)[0])
    assert value_of(called(stage, turns_of(stage, again)[-1], read())) == "kept"
    stage.runs.remove(WORKSPACE, run.id, now_ms=stage.now_ms)
    with stage.database.read() as tx:
        assert {row.owner for row in tx.execute(rows.select())} == {again.id}
    OldRuns(stage.database, 1).remove_some("", stage.now_ms + 2 * DAY_MS)
    with stage.database.read() as tx:
        assert tx.execute(rows.select()).all() == []
