"""I21: each test breaks turns that waited for other agents and kept every promise, in one way."""

import pytest

from tests.chaos.checker import check
from tests.chaos.records import Injection
from tests.chaos.unit.made import NOW_MS, Run, assert_found
from tests.chaos.unit.talked import talked

DEEP = "T00009 tools=delegate@ann,delegate@ben >tools=ask_agent@cat"
LATE_MS = NOW_MS + 10_000


@pytest.fixture
def parent(run: Run) -> str:
    """The id of a turn with two children, each with one of its own."""
    return talked(run, DEEP).id


def child_of(run: Run, parent: str) -> str:
    """Its first child."""
    query = "SELECT child_turn_id FROM calls WHERE turn_id = ? ORDER BY position"
    return str(run.row(query, parent)[0])


def test_agents_that_kept_every_promise_have_no_violation(run: Run, parent: str) -> None:
    assert run.row("SELECT count(*) FROM turns WHERE parent_turn_id IS NOT NULL")[0] == 4
    assert check(run.evidence()) == ()


def test_a_child_that_no_call_has_asked_for_is_found(run: Run, parent: str) -> None:
    run.sql("UPDATE turns SET parent_turn_id = ? WHERE id = ?", parent, run.id_of("T00001"))
    assert_found(run.evidence(), "I21", f"works for {parent}, and the calls that asked for it are of []")


def test_a_child_that_two_calls_have_asked_for_is_found(run: Run, parent: str) -> None:
    run.sql("UPDATE calls SET child_turn_id = ? WHERE turn_id = ?", child_of(run, parent), parent)
    assert_found(run.evidence(), "I21", f"the calls that asked for it are of ['{parent}', '{parent}']")


def test_a_completed_call_without_its_child_is_found(run: Run, parent: str) -> None:
    run.sql("UPDATE calls SET child_turn_id = NULL WHERE turn_id = ? AND position = 0", parent)
    assert_found(run.evidence(), "I21", "is completed, was begun 1 times, and asked for no turn")


def test_a_call_that_was_begun_and_has_no_child_is_found_however_it_ended(run: Run, parent: str) -> None:
    run.sql("UPDATE calls SET child_turn_id = NULL, status = 'failed' WHERE turn_id = ? AND position = 0", parent)
    assert_found(run.evidence(), "I21", "is failed, was begun 1 times, and asked for no turn")


def test_a_call_that_was_refused_needs_no_child(run: Run) -> None:
    run.sql("UPDATE calls SET name = 'ask_agent', status = 'failed', sends = 0 WHERE name = 'note'")
    assert [each for each in check(run.evidence()) if each.invariant == "I21"] == []


def test_a_lost_child_is_found(run: Run, parent: str) -> None:
    run.sql("UPDATE calls SET child_turn_id = 'turn_none' WHERE turn_id = ? AND position = 0", parent)
    assert_found(run.evidence(), "I21", "asked for turn_none, which is not in the database")


@pytest.mark.parametrize(
    ("change", "flaw"),
    [
        ("agent = 'dot'", "of dot instead of ann"),
        ("input = 'T77777 hearsay'", "which was asked 'T77777 hearsay' instead of"),
        ("status = 'failed'", "is completed, and that turn is failed"),
        ("ancestors = '[]'", "for which [] wait"),
        ("status = 'in_progress'", "is completed, and T"),
    ],
)
def test_a_child_that_is_not_as_its_call_asked_is_found(run: Run, parent: str, change: str, flaw: str) -> None:
    run.sql(f"UPDATE turns SET {change} WHERE id = ?", child_of(run, parent))
    assert_found(run.evidence(), "I21", flaw)


def test_a_result_that_is_not_the_childs_answer_is_found(run: Run, parent: str) -> None:
    run.sql("UPDATE calls SET content = 'hearsay' WHERE turn_id = ? AND position = 0", parent)
    assert_found(run.evidence(), "I21", "gave 'hearsay', T")


def test_a_reference_that_does_not_hold_the_answer_is_found(run: Run, parent: str) -> None:
    run.sql("UPDATE calls SET ref = 'ref_none', content = 'hearsay' WHERE turn_id = ? AND position = 0", parent)
    assert_found(run.evidence(), "I21", "gave ref_none, which is not the answer of T")
    assert_found(run.evidence(), "I21", "does not name ref_none")


def test_an_agent_that_is_asked_within_its_own_question_is_found(run: Run, parent: str) -> None:
    run.sql("UPDATE turns SET agent = 'default' WHERE id = ?", child_of(run, parent))
    assert_found(run.evidence(), "I21", "asks default again, within ['default']")


def test_a_path_that_is_too_long_is_found(run: Run, parent: str) -> None:
    path = ",".join(f'{{"turn_id": "t{n}", "lane": "l", "agent": "a{n}"}}' for n in range(4))
    run.sql(f"UPDATE turns SET ancestors = '[{path}]' WHERE id = ?", child_of(run, parent))
    assert_found(run.evidence(), "I21", "has 4 turns that wait for it")


def test_a_turn_that_waits_although_its_answer_is_there_is_found(run: Run, parent: str) -> None:
    run.sql("UPDATE turns SET status = 'in_progress', completed_ms = NULL WHERE id = ?", parent)
    assert_found(run.evidence(), "I21", "is in_progress, and waits for T")


def test_a_child_that_outlives_the_turn_that_waits_for_it_is_found(run: Run, parent: str) -> None:
    run.sql("UPDATE turns SET completed_ms = ? WHERE id = ?", LATE_MS, child_of(run, parent))
    assert_found(run.evidence(), "I21", "went on and is completed")


def test_a_child_that_ended_beside_its_parent_or_while_a_commit_was_held_up_may_have_a_later_end(
    run: Run, parent: str
) -> None:
    run.sql("UPDATE turns SET completed_ms = completed_ms + 1500 WHERE id = ?", child_of(run, parent))
    assert [each for each in check(run.evidence()) if each.invariant == "I21"] == []
    run.sql("UPDATE turns SET completed_ms = ? WHERE id = ?", LATE_MS, child_of(run, parent))
    lock = Injection("lock", "database", NOW_MS / 1000, NOW_MS / 1000 + 8)
    assert [each for each in check(run.evidence(injections=(lock,))) if each.invariant == "I21"] == []


@pytest.mark.parametrize("status", ["timeout", "cancelled"])
def test_a_child_that_goes_on_after_its_call_gave_it_up_is_found(run: Run, parent: str, status: str) -> None:
    run.sql("UPDATE calls SET status = ? WHERE turn_id = ? AND position = 0", status, parent)
    assert [each for each in check(run.evidence()) if each.invariant == "I21"] == []
    run.sql("UPDATE turns SET completed_ms = ? WHERE id IN (?, ?)", LATE_MS, child_of(run, parent), parent)
    assert_found(run.evidence(), "I21", "went on for 10.0 s")
