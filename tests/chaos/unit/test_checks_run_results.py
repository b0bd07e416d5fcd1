"""I19: each test breaks what a run has asked or given."""

import pytest

from tests.chaos.unit.made import Run, assert_found
from tests.chaos.unit.workflowed import CHAIN, FORK, REJECTED, workflow_run


def test_a_wrong_result_is_found(run: Run) -> None:
    workflow_run(run, FORK)
    run.sql("UPDATE workflow_runs SET merged_output = 'hearsay'")
    assert_found(run.evidence(), "I19", "gives 'hearsay', and its answers come to")


@pytest.mark.parametrize("change", ["status = 'failed'", "reason = 'no-branch'"])
def test_a_wrong_end_is_found(run: Run, change: str) -> None:
    workflow_run(run, FORK)
    run.sql(f"UPDATE workflow_runs SET {change}")
    assert_found(run.evidence(), "I19", "and should be completed (None)")


def test_a_run_that_a_person_rejected_and_that_is_completed_is_found(run: Run) -> None:
    workflow_run(run, REJECTED)
    run.sql("UPDATE workflow_runs SET status = 'completed', reason = NULL")
    assert_found(run.evidence(), "I19", "is completed (None), and should be failed (rejected)")


def test_a_stage_that_is_missing_is_found(run: Run) -> None:
    workflow_run(run, CHAIN)
    run.sql("DELETE FROM run_stages WHERE key = 'stages.3'")
    assert_found(run.evidence(), "I19", "ended completed, and did not ask stages.3")


def test_a_stage_too_many_is_found(run: Run) -> None:
    workflow_run(run, CHAIN)
    run.sql("UPDATE run_stages SET key = 'stages.0.retry.7' WHERE key = 'stages.3'")
    assert_found(run.evidence(), "I19", "stages.0.retry.7 was asked, and its workflow does not ask it")


def test_a_stage_whose_retries_were_not_needed_is_found(run: Run) -> None:
    workflow_run(run, CHAIN)
    run.sql("""UPDATE run_stages SET output_text = 'So: ' || char(10) || '{"n":4}' WHERE key = 'stages.0'""")
    assert_found(run.evidence(), "I19", "stages.0.retry.1 was asked, and its workflow does not ask it")


def test_a_question_to_somebody_else_is_found(run: Run) -> None:
    workflow_run(run, FORK)
    run.sql("UPDATE run_stages SET agent_id = 'dan' WHERE key = 'agents.1'")
    assert_found(run.evidence(), "I19", "agents.1 was put to dan, not to bob")


def test_a_prompt_without_the_output_before_it_is_found(run: Run) -> None:
    workflow_run(run, CHAIN)
    run.sql("UPDATE turns SET input = substr(input, 1, 40) WHERE metadata LIKE '%stages.2\"%'")
    assert_found(run.evidence(), "I19", "stages.2 quotes nothing, and should quote T")


def test_a_prompt_with_a_part_of_the_output_is_found(run: Run) -> None:
    workflow_run(run, CHAIN)
    run.sql("UPDATE turns SET input = replace(input, 'says: ', '') WHERE metadata LIKE '%stages.2\"%'")
    assert_found(run.evidence(), "I19", "stages.2 does not quote")


def test_an_approval_that_shows_something_else_is_found(run: Run) -> None:
    workflow_run(run, CHAIN)
    run.sql("UPDATE run_stages SET prompt = 'Is it fine?' WHERE key = 'stages.2.approval'")
    assert_found(run.evidence(), "I19", "stages.2.approval quotes nothing, and should quote T")


def test_an_end_with_a_stage_that_did_not_fail_is_found(run: Run) -> None:
    workflow_run(run, FORK)
    run.sql("UPDATE run_stages SET status = 'failed', reason = 'provider' WHERE key = 'agents.0'")
    assert_found(run.evidence(), "I19", "is completed (None), and stages of it ended ['provider']")
