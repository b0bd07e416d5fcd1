"""I18 and I10: each test breaks runs of workflows that kept every promise, in one way."""

from dataclasses import replace

import pytest

from tests.chaos.checker import check
from tests.chaos.records import Evidence
from tests.chaos.run_records import RunCancelled, RunWitness
from tests.chaos.unit.made import NOW_MS, Run, assert_found
from tests.chaos.unit.workflowed import CHAIN, FORK, REJECTED, retried, workflow_run


def changed(run: Run, **fields: object) -> Evidence:
    """The evidence with something else that the clients of runs saw."""
    witness: RunWitness = replace(run.runs.witness(), **fields)  # type: ignore[arg-type]
    return run.evidence(runs=witness)


def test_runs_that_kept_every_promise_have_no_violation(run: Run) -> None:
    workflow_run(run, CHAIN)
    workflow_run(run, FORK)
    assert check(run.evidence()) == ()


def test_a_run_that_was_rejected_and_its_retry_have_no_violation(run: Run) -> None:
    retried(run, REJECTED, workflow_run(run, REJECTED))
    found = [each for each in check(run.evidence()) if each.invariant != "I10"]  # nobody went on with the first one
    assert found == []


def test_a_run_that_was_cancelled_has_no_violation(run: Run) -> None:
    workflow_run(run, FORK, cancels=True)
    assert check(run.evidence()) == ()


def test_a_lost_run_is_found(run: Run) -> None:
    run_id = workflow_run(run, FORK)
    run.sql("DELETE FROM workflow_runs WHERE id = ?", run_id)
    assert_found(run.evidence(), "I18", f"{run_id} was accepted and is not in the database")
    assert_found(run.evidence(), "I18", f"{run_id} has turns and is not in the database")


def test_a_run_that_never_ended_is_found(run: Run) -> None:
    run_id = workflow_run(run, FORK)
    run.sql("UPDATE workflow_runs SET status = 'in_progress', completed_ms = NULL WHERE id = ?", run_id)
    assert_found(run.evidence(), "I18", "accepted, never ended: in_progress")


def test_a_second_run_of_one_key_is_found(run: Run) -> None:
    first, second = workflow_run(run, FORK), workflow_run(run, FORK)
    started = tuple(replace(each, answers=(first, second)) for each in run.runs.started[:1])
    assert_found(changed(run, started=started), "I18", f"the same key was also answered {second}")
    assert_found(changed(run, started=started), "I18", "is in the database, and nobody was told of it")


def test_a_run_of_another_workflow_is_found(run: Run) -> None:
    workflow_run(run, FORK)
    started = tuple(replace(each, job=replace(FORK, name="R00009", workflow="talk")) for each in run.runs.started)
    assert_found(changed(run, started=started), "I18", "was started as talk")
    assert_found(changed(run, started=started), "I18", "was started as R00009")


def test_a_run_that_nobody_cancelled_and_that_is_cancelled_is_found(run: Run) -> None:
    workflow_run(run, FORK, cancels=True)
    assert_found(changed(run, cancelled=()), "I18", "cancelled, and nobody asked for that")


def test_a_turn_of_a_run_that_is_none_of_its_stages_is_found(run: Run) -> None:
    run_id = workflow_run(run, FORK)
    run.sql("UPDATE turns SET run_id = ? WHERE id = ?", run_id, run.id_of("T00001"))
    assert_found(run.evidence(), "I18", "is a turn of it, and none of its stages")


def test_a_turn_that_is_two_stages_is_found(run: Run) -> None:
    run_id = workflow_run(run, FORK)
    run.sql("UPDATE run_stages SET turn_id = (SELECT min(turn_id) FROM run_stages) WHERE run_id = ?", run_id)
    assert_found(run.evidence(), "I18", "is 3 stages")
    assert_found(run.evidence(), "I18", "its stage agents.1 is a turn for agents.0")


def test_a_stage_without_its_turn_is_found(run: Run) -> None:
    workflow_run(run, FORK)
    run.sql("UPDATE run_stages SET turn_id = 'turn_none' WHERE key = 'agents.1'")
    assert_found(run.evidence(), "I18", "its stage agents.1 is no turn of the database")


@pytest.mark.parametrize(
    ("change", "flaw"),
    [
        ("output_text = 'hearsay'", "has the output 'hearsay', the answer is"),
        ("status = 'failed'", "has another status than its turn"),
        ("usage = '{}'", "has another usage than its turn"),
        ("agent_id = 'bob'", "was put to ada in fork-first:ada:"),
        ("completed_ms = NULL", "has ended, and its stage agents.0 has not"),
    ],
)
def test_a_stage_that_is_not_as_its_turn_is_found(run: Run, change: str, flaw: str) -> None:
    workflow_run(run, FORK)
    run.sql(f"UPDATE run_stages SET {change} WHERE key = 'agents.0'")
    assert_found(run.evidence(), "I18", flaw)


def test_a_turn_that_was_begun_after_the_cancel_is_found(run: Run) -> None:
    run_id = workflow_run(run, FORK, cancels=True)
    early = (RunCancelled(run_id, NOW_MS / 1000 - 10),)
    assert_found(changed(run, cancelled=early), "I18", "was begun after its cancel was answered")


def test_a_cancel_that_was_forgotten_is_found(run: Run) -> None:
    run_id = workflow_run(run, FORK)
    early = (RunCancelled(run_id, NOW_MS / 1000 - 10),)
    assert_found(changed(run, cancelled=early), "I18", "its cancel was answered, and it knows nothing of that")
    run.sql("UPDATE workflow_runs SET cancel = 'interrupt'")
    assert_found(changed(run, cancelled=early), "I18", "it was cancelled and is completed")


def test_a_stage_that_was_taken_over_and_changed_is_found(run: Run) -> None:
    again = retried(run, REJECTED, workflow_run(run, REJECTED))
    run.sql("UPDATE run_stages SET output_text = 'hearsay' WHERE run_id = ? AND key = 'stages.0.retry.1'", again)
    assert_found(run.evidence(), "I18", "took over stages.0.retry.1, which run_")


def test_a_completed_stage_that_is_done_again_is_found(run: Run) -> None:
    again = retried(run, REJECTED, workflow_run(run, REJECTED))
    run.sql("UPDATE run_stages SET is_reused = 0 WHERE run_id = ? AND key = 'stages.1'", again)
    assert_found(run.evidence(), "I18", "did not take over stages.1 of run_")
    assert_found(run.evidence(), "I18", "its stage stages.1 is a turn of run_")


def test_a_stage_that_was_taken_over_from_nowhere_is_found(run: Run) -> None:
    workflow_run(run, FORK)
    run.sql("UPDATE run_stages SET is_reused = 1 WHERE key = 'agents.0'")
    assert_found(run.evidence(), "I18", "took over agents.0, from nowhere")


def test_a_part_of_what_failed_that_was_taken_over_is_found(run: Run) -> None:
    again = retried(run, REJECTED, workflow_run(run, REJECTED))
    run.sql("UPDATE run_stages SET is_reused = 1 WHERE run_id = ? AND key = 'stages.2'", again)
    assert_found(run.evidence(), "I18", "took over stages.2, which run_")


def test_a_decision_that_nobody_gave_is_found(run: Run) -> None:
    workflow_run(run, CHAIN)
    assert_found(changed(run, decided=()), "I18", "stages.2.approval is revise, and nobody has said so")


@pytest.mark.parametrize(
    ("fields", "flaw"),
    [
        ({"answers": (409,)}, "was decided on for the first time, and the answer was 409"),
        ({"answers": (0, 404)}, "was decided on, and the answer was 404"),
        ({"opposed": 200}, "was decided on twice, and the second answer was 200"),
        ({"verdict": "reject"}, "and somebody was told that it is reject"),
    ],
)
def test_a_person_who_is_told_something_else_is_found(run: Run, fields: dict[str, object], flaw: str) -> None:
    workflow_run(run, CHAIN)
    decided = tuple(replace(each, **fields) for each in run.runs.decided)  # type: ignore[arg-type]
    assert_found(changed(run, decided=decided), "I18", flaw)


def test_an_approval_that_was_shown_as_waiting_again_is_found(run: Run) -> None:
    workflow_run(run, CHAIN)
    assert_found(changed(run, decided=tuple(run.runs.decided) * 2), "I18", "was shown as waiting after it was decided")


def test_a_decision_whose_answer_was_lost_may_be_answered_409(run: Run) -> None:
    workflow_run(run, CHAIN)
    decided = tuple(replace(each, answers=(0, 503, 409)) for each in run.runs.decided)
    assert check(changed(run, decided=decided)) == ()


def test_a_run_that_did_not_end_as_it_should_is_found(run: Run) -> None:
    workflow_run(run, FORK)
    started = tuple(replace(each, job=replace(FORK, ends="no-consensus")) for each in run.runs.started)
    assert_found(changed(run, started=started), "I10", "ended completed, not no-consensus")
