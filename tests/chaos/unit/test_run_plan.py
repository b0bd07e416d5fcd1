"""The plan of runs."""

import pytest

from loom_worker.workflows.placeholders import missing, surplus
from tests.chaos.run_plan import RunJob, RunMix, plan_runs
from tests.chaos.unit.workflowed import workflows
from tests.chaos.workflow_files import SPECS


def jobs(**shares: object) -> tuple[RunJob, ...]:
    return plan_runs(300, seed=3, mix=RunMix(**shares))  # type: ignore[arg-type]


def test_the_same_seed_gives_the_same_runs_and_another_seed_others() -> None:
    assert plan_runs(50, seed=1) == plan_runs(50, seed=1)
    assert plan_runs(50, seed=1) != plan_runs(50, seed=2)


def test_every_run_has_a_name_of_its_own() -> None:
    assert sorted(job.name for job in plan_runs(40, seed=1, first=30)) == [f"R{n:05d}" for n in range(30, 70)]


def test_there_are_runs_of_every_workflow_and_every_type() -> None:
    assert {job.workflow for job in plan_runs(60, seed=4)} == SPECS.keys()
    assert {each.pattern.type for each in workflows().values()} == {
        *("pipeline", "fork-join", "parallel", "conditional", "iterative", "debate", "swarm", "coordination")
    }


def test_every_way_to_end_is_planned() -> None:
    ends = {"completed", "invalid-output", "no-branch", "iterations", "no-consensus"}
    assert {job.ends for job in jobs()} == ends


@pytest.mark.parametrize("name", sorted(SPECS))
def test_a_run_has_the_variables_of_its_workflow(name: str) -> None:
    for job in jobs(only=(name,)):
        assert missing(workflows()[name], job.variables) == ()
        assert surplus(workflows()[name], job.variables) == ()


def test_shares_of_zero_give_no_such_runs() -> None:
    plain = jobs(cancelled=0, webhooks=0, twice=0, read=0, budgeted=0)
    assert not any(job.cancel_after_s or job.hook or job.is_sent_twice or job.is_read or job.tokens for job in plain)
