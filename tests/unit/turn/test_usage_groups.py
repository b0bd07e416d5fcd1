"""What was spent, summed by anything it can be summed by."""

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

SUMMED = ("input_tokens", "output_tokens", "cache_read_tokens", "llm_calls", "tool_calls", "cost_usd")
KINDS = ("turn", "summary", "rerank", "judge", "embedding")
DELEGATE = ("delegate", {"agent": "helper", "task": "Count."})
MARIA = WorkspaceUser(WORKSPACE, "maria")


def by(stage: Stage, group: str, tenant: str | WorkspaceUser = WORKSPACE) -> dict[str, int]:
    """Calls of models by key."""
    return {row["key"]: row["llm_calls"] for row in Ledger(stage.database).totals(tenant, group_by=group)}


def delegating(stage: Stage) -> Turn:
    """The stage of a run of the workflow ``flow`` for maria; it waits for another agent."""
    new = NewRun(user="maria")
    step, _ = stage.runs.accept(WORKSPACE, workflow(pipeline("Ask.")), new, now_ms=stage.now_ms)
    stage.teller().tell(step)
    stage.model.scenes = [wants(DELEGATE)]
    (begun,) = Runs(stage.database).get(WORKSPACE, step.run.id).stages
    return stage.serve(stage.turns.get(WORKSPACE, str(begun.turn_id)), stage.worker("w1"))


def entered(stage: Stage, turn: Turn, n: int = 7) -> None:
    """Charge something beside a turn, some of it without naming the turn."""
    spent, turn_id = Usage(n, 2 * n, 3 * n, 4 * n, usd(n) / 1000, 1), turn.id if n % 3 == 0 else ""
    names = (WORKSPACE, turn.session_id, f"a{n % 5}", f"m{n % 7}")
    charge = Charge(*names, spent, turn_id, kind=KINDS[n % 5], tool_calls=n % 4)  # type: ignore[arg-type]
    Ledger(stage.database).charge(turn.lane, charge, now_ms=stage.now_ms + n * 40_000_000)


def test_stages_and_what_they_delegate_and_summaries_count_for_run_and_workflow_and_all_else_for_none(
    stage: Stage,
) -> None:
    entered(stage, stage.answered(says("hello"), session="s1"))
    asker = delegating(stage)
    child = stage.turns.get(WORKSPACE, str(asker.calls[0].child_turn_id))
    stage.model.scenes = [says("42"), says("It is 42.")]
    stage.serve(child, stage.worker("w1"))
    stage.serve(asker, stage.worker("w1"))
    entered(stage, asker)
    assert by(stage, "run") == {"": 2, str(asker.run_id): 4}
    assert by(stage, "user") == {"": 2, "maria": 4}
    assert by(stage, "run", MARIA) == {str(asker.run_id): 4}
    assert by(stage, "workflow", WorkspaceUser(WORKSPACE, "john")) == {}
    stage.runs.remove(WORKSPACE, str(asker.run_id), now_ms=stage.now_ms)
    assert by(stage, "workflow") == {"flow": 4, "": 2}


def test_a_run_that_is_deleted_while_it_works_is_charged_to_its_workflow(stage: Stage) -> None:
    run_id = str(delegating(stage).run_id)
    stage.runs.remove(WORKSPACE, run_id, now_ms=stage.now_ms)
    assert (by(stage, "workflow"), by(stage, "run")) == ({"flow": 1}, {run_id: 1})


def test_sums_are_the_same_whatever_they_are_grouped_by(stage: Stage) -> None:
    both = stage.answered(says("hello"), session="s1"), delegating(stage)
    for n in range(1, 41):
        entered(stage, both[n % 2], n)
    found = (Ledger(stage.database).totals(WORKSPACE, group_by=group) for group in GROUPS)
    assert len({tuple(round(sum(row[name] for row in rows), 9) for name in SUMMED) for rows in found}) == 1


def test_a_turn_says_who_answers_it_for_whom_and_on_what_budget(stage: Stage) -> None:
    turn = stage.submit(user="maria", budget={"tokens": 50_000})
    who = {"agent": "default", "model": None, "user": "maria", "budget": {"tokens": 50_000}}
    assert turn.as_json().items() >= who.items()
    stage.model.scenes = [says("hello")]
    ended = stage.serve(turn, stage.worker("w1"))
    listed = stage.turns.page(WORKSPACE, {}, limit=1, after=None).items[0]
    for told in (ended.as_json(), listed.as_json(), stage.live(turn)[-1].data):
        assert told.items() >= {**who, "model": "played"}.items()


def test_a_model_without_a_price_is_told_of_once(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    stage.model.name = "nobody-knows-its-price"
    for text in ("One.", "Two."):
        stage.answered(says(text))
    assert [each.args for each in caplog.records if each.name == "loom_worker.llm.prices"] == [(stage.model.name,)]
