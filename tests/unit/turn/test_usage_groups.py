"""What was spent, summed by anything it can be summed by."""

from itertools import cycle

import pytest

from loom_worker.core.values.budgets import usd
from loom_worker.core.values.chat import Usage
from loom_worker.core.values.runs import NewRun
from loom_worker.core.values.tenants import WorkspaceUser
from loom_worker.core.values.turns import Turn
from loom_worker.core.values.usage import GROUPS
from loom_worker.store.ledger import Charge, Ledger
from loom_worker.store.runs import Runs
from tests.support.models import says, wants
from tests.support.runs import pipeline, workflow
from tests.support.stage import WORKSPACE, Stage
from tests.unit.turn.test_children import talking as talking

SUMMED = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "llm_calls",
    "tool_calls",
    "cost_usd",
)
KINDS = cycle(["turn", "summary", "rerank", "judge", "embedding"])
BUDGET = {"tokens": 50_000}
DELEGATE = ("delegate", {"agent": "helper", "task": "Count."})


def by(stage: Stage, group: str, tenant: str | WorkspaceUser = WORKSPACE) -> dict[str, int]:
    """Calls of models by key."""
    found = Ledger(stage.database).totals(tenant, group_by=group)
    return {row["key"]: row["llm_calls"] for row in found}


def stage_turn(stage: Stage, run_id: str) -> Turn:
    return stage.turns.get(WORKSPACE, str(Runs(stage.database).get(WORKSPACE, run_id).stages[-1].turn_id))


@pytest.fixture
def run_id(stage: Stage) -> str:
    """A run of the workflow ``flow`` for maria, whose stage and whose delegated turn have asked a model 3 times."""
    step, _ = stage.runs.accept(WORKSPACE, workflow(pipeline("Ask.")), NewRun(user="maria"), now_ms=stage.now_ms)
    stage.teller().tell(step)
    stage.model.scenes = [wants(DELEGATE)]
    asker = stage.serve(stage_turn(stage, step.run.id), stage.worker("w1"))
    child = stage.turns.get(WORKSPACE, str(asker.calls[0].child_turn_id))
    stage.model.scenes = [says("42"), says("It is 42.")]
    stage.serve(child, stage.worker("w1"))
    stage.serve(asker, stage.worker("w1"))
    return step.run.id


def test_stages_and_the_turns_they_delegate_count_for_their_run_and_workflow_and_all_else_for_none(
    stage: Stage, run_id: str
) -> None:
    stage.answered(says("hello"), session="s1")
    turn = stage_turn(stage, run_id)
    spent = Usage(input_tokens=7, llm_calls=1)
    for lane, session in ((turn.lane, turn.session_id), ("lane of a deleted session", "s9")):
        Ledger(stage.database).charge(
            lane, Charge(WORKSPACE, session, "default", "m", spent, kind="summary"), now_ms=stage.now_ms
        )
    assert by(stage, "run") == {"": 2, run_id: 4}
    assert by(stage, "workflow") == {"": 2, "flow": 4}
    assert by(stage, "user") == {"": 2, "maria": 4}
    assert by(stage, "run", WorkspaceUser(WORKSPACE, "maria")) == {run_id: 4}
    assert by(stage, "workflow", WorkspaceUser(WORKSPACE, "john")) == {}
    stage.runs.remove(WORKSPACE, run_id, now_ms=stage.now_ms)
    assert by(stage, "workflow") == {"": 2, "flow": 4}


def test_a_run_that_is_deleted_while_it_works_is_charged_to_its_workflow(stage: Stage) -> None:
    step, _ = stage.runs.accept(WORKSPACE, workflow(pipeline("Ask.")), NewRun(), now_ms=stage.now_ms)
    stage.teller().tell(step)
    stage.model.scenes = [wants(DELEGATE)]
    stage.serve(stage_turn(stage, step.run.id), stage.worker("w1"))
    stage.runs.remove(WORKSPACE, step.run.id, now_ms=stage.now_ms)
    assert (by(stage, "workflow"), by(stage, "run")) == ({"flow": 1}, {step.run.id: 1})


def test_sums_are_the_same_whatever_they_are_grouped_by(stage: Stage, run_id: str) -> None:
    plain, turn = stage.answered(says("hello"), session="s1"), stage_turn(stage, run_id)
    for n, kind in zip(range(1, 41), KINDS, strict=False):
        of = (plain, turn)[n % 2]
        spent = Usage(n, 2 * n, 3 * n, 4 * n, usd(n) / 1000, 1)
        turn_id = "" if n % 3 else of.id
        charge = Charge(WORKSPACE, of.session_id, f"a{n % 5}", f"m{n % 7}", spent, turn_id, kind=kind, tool_calls=n % 4)
        Ledger(stage.database).charge(of.lane, charge, now_ms=stage.now_ms + n * 40_000_000)
    ledger = Ledger(stage.database)
    sums = {
        tuple(round(sum(row[name] for row in rows), 9) for name in SUMMED)
        for rows in (ledger.totals(WORKSPACE, group_by=group) for group in GROUPS)
    }
    assert len(sums) == 1


def test_a_turn_says_who_answers_it_for_whom_and_on_what_budget(stage: Stage) -> None:
    turn = stage.submit(user="maria", budget=BUDGET)
    told = turn.as_json()
    assert (told["agent"], told["model"], told["user"], told["budget"]) == (
        "default",
        None,
        "maria",
        BUDGET,
    )
    stage.model.scenes = [says("hello")]
    stage.serve(turn, stage.worker("w1"))
    told = stage.turn(turn).as_json()
    assert (told["model"], told["user"]) == ("played", "maria")
    assert stage.live(turn)[-1].data == told
    listed = stage.turns.page(WORKSPACE, {}, limit=1, after=None).items[0].as_json()
    assert (listed["agent"], listed["model"], listed["user"]) == ("default", "played", "maria")
    assert stage.submit().as_json()["budget"] is None
