"""I9 and I10: each test breaks a good run in one way, or does what is allowed."""

from contextlib import closing
from dataclasses import replace

import pytest

from loom_worker.core.sqlite_driver import sqlite3
from loom_worker.core.values.turns import Ending
from tests.chaos.checker import check, figures
from tests.chaos.records import Injection
from tests.chaos.unit.made import Run, assert_found, changed


def test_a_leftover_is_found(run: Run) -> None:
    assert_found(run.evidence(leftovers=("lease of s1",)), "I9", "lease of s1")


def test_an_unfinished_turn_is_found_even_if_nobody_was_told_of_it(run: Run) -> None:
    run.accepted("T00005 plain")
    assert_found(run.evidence(submitted=tuple(run.submitted[:-1])), "I9", "is in_progress")


@pytest.mark.parametrize(("column", "what"), [("held_by", "is held by 7"), ("parked_until_ms", "is parked")])
def test_a_turn_that_is_held_or_parked_after_its_end_is_found(run: Run, column: str, what: str) -> None:
    run.sql(f"UPDATE turns SET {column} = 7 WHERE id = ?", run.id_of("T00001"))
    assert_found(run.evidence(), "I9", what)


@pytest.mark.parametrize("status", ["pending", "running"])
def test_an_open_call_is_found(run: Run, status: str) -> None:
    run.sql("UPDATE calls SET status = ? WHERE position = 1", status)
    assert_found(run.evidence(), "I9", f"is {status}")


@pytest.mark.parametrize("table", ["steps", "calls", "messages", "outbox", "usage"])
def test_a_row_of_no_turn_is_found(run: Run, table: str) -> None:
    key = {"steps": "rowid", "calls": "rowid", "outbox": "rowid"}.get(table, "n")
    run.sql(f"UPDATE {table} SET turn_id = 'turn_gone' WHERE {key} = (SELECT max({key}) FROM {table})")
    assert_found(run.evidence(), "I9", f"orphan: {table}")


def open_to_changes(run: Run) -> None:
    with closing(sqlite3.connect(run.settings.home / "loom.db")) as connection:
        connection.execute("DROP TRIGGER audit_is_not_changed")


def test_a_turn_without_its_row_of_the_audit_is_found(run: Run) -> None:
    open_to_changes(run)
    run.sql("UPDATE audit SET turn_id = 'turn_gone' WHERE turn_id = ?", run.id_of("T00001"))
    assert_found(run.evidence(), "I9", "has ended and has 0 rows")


def test_a_row_of_the_audit_that_was_changed_is_found(run: Run) -> None:
    open_to_changes(run)
    run.sql("UPDATE audit SET tokens = 1 + coalesce(tokens, 0) WHERE seq = 1")
    assert_found(run.evidence(), "I9", "its hash is not that of its columns")


def test_a_broken_reference_is_found(run: Run) -> None:
    run.sql("UPDATE turns SET lane = 'nowhere' WHERE id = ?", run.id_of("T00003"))
    assert_found(run.evidence(), "I9", "of turns has no sessions")


def test_a_message_of_a_turn_that_goes_on_is_found(run: Run) -> None:
    run.accepted("T00005 plain")
    run.sql(
        "UPDATE messages SET turn_id = ? WHERE n = (SELECT max(n) FROM messages)",
        run.id_of("T00005"),
    )
    assert_found(run.evidence(), "I9", "is in_progress, with 1 messages")


def test_a_session_whose_turns_are_miscounted_is_found(run: Run) -> None:
    run.sql("UPDATE sessions SET queue_depth = queue_depth + 1 WHERE lane = (SELECT min(lane) FROM sessions)")
    assert_found(run.evidence(), "I9", "unfinished turns, and has")


def test_an_index_that_lacks_a_row_is_found(run: Run) -> None:
    with closing(sqlite3.connect(run.settings.home / "loom.db")) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        narrower = "UPDATE sqlite_schema SET sql = replace(sql, 'queued', 'completed') WHERE name = 'turns_unfinished'"
        connection.execute(narrower)
        connection.commit()
    assert_found(run.evidence(), "I9", "integrity_check")


def test_a_run_that_injected_nothing_is_found(run: Run) -> None:
    assert_found(run.evidence(injections=()), "I10", "nothing was injected")


def test_a_crash_point_that_was_not_hit_is_found(run: Run) -> None:
    hit = (Injection("crash", "turn.claimed", 900.0, 900.0), Injection("kill", "llm.sent", 900.0, 900.0))
    points = ("turn.claimed", "llm.sent")
    assert_found(run.evidence(injections=hit, planned_points=points), "I10", "llm.sent was planned and never hit")
    assert check(run.evidence(injections=hit, planned_points=points[:1])) == ()


@pytest.mark.parametrize("witness", ["submitted", "polled", "model_calls"])
def test_a_witness_that_saw_nothing_is_found(run: Run, witness: str) -> None:
    assert_found(run.evidence(**{witness: ()}), "I10", "that witness is blind")


def test_a_run_whose_people_were_never_asked_is_found(run: Run) -> None:
    asking = changed(run.submitted, {"mark": "T00001"}, asks_person=True)
    assert_found(run.evidence(submitted=asking), "I10", "no decision was made")
    may_fail = changed(run.submitted, {"mark": "T00001"}, asks_person=True, may_fail=True)
    assert check(run.evidence(submitted=may_fail)) == ()


def test_too_many_turns_that_did_not_complete_are_found(run: Run) -> None:
    run.turn("T00005 plain", ending=Ending("failed", "provider"))
    assert_found(run.evidence(), "I10", "1 of 5 turns did not complete: T00005 failed (provider: None)")


def test_one_turn_in_a_hundred_may_fail(run: Run) -> None:
    for number in range(5, 101):
        run.turn(
            f"T{number:05} plain", session=f"s{number}", ending=Ending("failed", "provider") if number == 5 else None
        )
    assert check(run.evidence()) == ()


def test_turns_that_were_meant_to_fail_do_not_count(run: Run) -> None:
    run.turn("T00005 plain", ending=Ending("failed", "provider"))
    submitted = changed(run.submitted, {"mark": "T00005"}, may_fail=True)
    assert check(run.evidence(submitted=submitted)) == ()


def test_the_figures_count_what_was_seen(run: Run) -> None:
    shown = figures(run.evidence())
    assert shown["turns"] == shown["turns_completed"] == 4
    assert shown["webhooks_wanted"] == shown["webhooks_delivered"] == 2
    assert shown["model_replies"] == shown["model_requests"] == 6
    assert shown["model_repeated_share"] == 0
    assert shown["tool_effects"] == 3
    assert shown["injected_duplicate"] == 1


def test_a_child_process_that_outlives_its_worker_is_found(run: Run) -> None:
    *others, last = run.effects
    effects = (*others, replace(last, worker=77))
    assert_found(run.evidence(effects=effects, deaths={77: last.at_s - 2}), "I9", "ran on for 2.0 s after its worker")


def test_a_child_process_may_end_with_its_worker(run: Run) -> None:
    *others, last = run.effects
    for died_s in (last.at_s - 0.2, last.at_s + 5):
        evidence = run.evidence(effects=(*others, replace(last, worker=77)), deaths={77: died_s})
        assert check(evidence) == ()
