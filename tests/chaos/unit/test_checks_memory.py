"""I11 in the database: each test breaks a good run with a long session in one way, or does what is allowed."""

import json
from typing import Any

import pytest

from loom_worker.core.values.turns import Ending
from tests.chaos.checker import check, figures
from tests.chaos.unit.compressed import compress_session, long_run, seen
from tests.chaos.unit.made import Run, assert_found


@pytest.fixture
def long(run: Run) -> Run:
    """The good run, with a session whose memory has several snapshots and an L2."""
    return long_run(run)


def test_a_long_session_that_kept_every_promise_is_not_blamed(long: Run) -> None:
    evidence = seen(long)
    assert check(evidence) == ()
    shown = figures(evidence)
    assert shown["memory_snapshots"] >= 2
    assert shown["memory_changes"] == long.row("SELECT version FROM memory")[0]
    assert shown["summary_requests"] == shown["summary_replies"] == shown["memory_changes"]
    assert shown["summary_replies_repeated"] == shown["memory_heuristic_share"] == 0


def test_a_session_that_was_compressed_without_the_model_is_not_blamed(run: Run) -> None:
    for number in range(5, 17):
        run.turn(f"T{number:05} plain")
        compress_session(run, "s1", is_busy=number < 9)
    evidence = seen(run)
    assert check(evidence) == ()
    assert 0 < figures(evidence)["memory_heuristic_share"] < 1


def test_a_message_in_no_layer_is_found(long: Run) -> None:
    long.sql("UPDATE memory SET first_n = first_n + 2")
    assert_found(seen(long), "I11", "is in no layer" if _l2(long) == "" else "L2")


def test_a_hole_between_l2_and_l1_is_found(long: Run) -> None:
    long.sql("UPDATE memory_snapshots SET to_n = from_n WHERE id = (SELECT min(id) FROM memory_snapshots)")
    assert_found(seen(long), "I11", "is in no layer")


def test_a_message_in_two_layers_is_found(long: Run) -> None:
    long.sql("UPDATE memory_snapshots SET to_n = to_n + 4 WHERE id = (SELECT min(id) FROM memory_snapshots)")
    assert_found(seen(long), "I11", " and in snap_")


def test_a_snapshot_that_is_gone_is_found(long: Run) -> None:
    long.sql("DELETE FROM memory_snapshots WHERE id = (SELECT max(id) FROM memory_snapshots)")
    assert_found(seen(long), "I11", "is in no layer")
    assert_found(seen(long), "I11", "its changes name the snapshots")


def test_a_turn_that_is_torn_between_two_layers_is_found(long: Run) -> None:
    long.sql("UPDATE memory SET first_n = first_n + 1")
    assert_found(seen(long), "I11", "is only in part in L1")


def test_a_layer_that_ends_at_a_message_of_another_session_is_found(long: Run) -> None:
    other = long.row("SELECT max(n) FROM messages WHERE session_id = 's2'")[0]
    long.sql("UPDATE memory_snapshots SET from_n = ? WHERE id = (SELECT min(id) FROM memory_snapshots)", other)
    assert_found(seen(long), "I11", f"ends at {other}, no message of the session")


def test_layers_in_another_order_are_found(long: Run) -> None:
    long.sql("UPDATE memory SET l2_from_n = first_n + 2")
    assert_found(seen(long), "I11", "is not before L1")


def test_a_change_that_was_applied_without_being_counted_is_found(long: Run) -> None:
    long.sql("UPDATE memory SET version = version - 1")
    assert_found(seen(long), "I11", "by the changes")


def test_a_change_that_is_known_twice_is_found(long: Run) -> None:
    _change(long, lambda changes: changes.__setitem__(0, changes[1]))
    assert_found(seen(long), "I11", "by the changes")


def test_changes_that_are_forgotten_too_early_are_found(long: Run) -> None:
    _change(long, lambda changes: changes.pop(0))
    assert_found(seen(long), "I11", "by the changes")


def test_messages_that_left_without_a_change_are_found(run: Run) -> None:
    short = long_run(run, turns=3)
    _change(short, lambda changes: changes[0].update(messages=changes[0]["messages"] - 2))
    assert_found(seen(short), "I11", "messages out of L1")


def test_a_snapshot_of_no_change_is_found(run: Run) -> None:
    short = long_run(run, turns=3)
    columns = "lane, session_id, snapshot_type, content, token_count, from_n, to_n, created_ms"
    short.sql(
        f"INSERT INTO memory_snapshots (id, {columns}) "
        "SELECT 'snap_x', lane, 's1', 'l2_summary', '', 0, 1, 2, 0 FROM memory"
    )
    assert_found(seen(short), "I11", "has 1 snapshots by 0 changes")


def test_a_summary_that_was_taken_up_twice_is_found(run: Run) -> None:
    short = long_run(run, turns=3)
    short.sql("UPDATE memory SET l2_text = l2_text || char(10) || l2_text")
    assert_found(seen(short), "I11", "is there 2 times")


def test_a_summary_of_another_part_is_found(run: Run) -> None:
    short = long_run(run, turns=3)
    short.sql("UPDATE memory SET l2_text = replace(l2_text, 'T00002', 'T00003')")
    assert_found(seen(short), "I11", "it stands for T00001, T00002")


def test_a_turn_that_no_summary_speaks_of_is_found(run: Run) -> None:
    short = long_run(run, turns=3)
    short.sql("UPDATE memory SET l2_text = replace(l2_text, 'T00001, ', '')")
    assert_found(seen(short), "I11", "it stands for ['T00001', 'T00002'")


def test_a_summary_that_vanished_is_found(run: Run) -> None:
    short = long_run(run, turns=3)
    short.sql("UPDATE memory SET l2_text = ''")
    assert_found(seen(short), "I11", "its summaries are of []")


@pytest.mark.parametrize(("column", "text"), [("held_by", "is held by 7"), ("due_ms", "is still due")])
def test_a_memory_that_is_held_or_due_at_rest_is_found(long: Run, column: str, text: str) -> None:
    long.sql(f"UPDATE memory SET {column} = 7")
    assert_found(seen(long), "I11", text)


def test_an_l1_that_nobody_compressed_is_found(run: Run) -> None:
    run.turn("T00005 plain")
    assert_found(seen(run), "I11", "should have left L1")


def test_an_l1_that_a_failed_turn_filled_waits_for_the_next_one(run: Run) -> None:
    short = long_run(run, turns=2)
    for number in range(7, 11):
        short.turn(f"T{number:05} plain", ending=Ending("failed", "provider"))
    assert "I11" not in {each.invariant for each in check(seen(short))}


def _l2(run: Run) -> str:
    return str(run.row("SELECT l2_text FROM memory WHERE l2_from_n > 0") or "")


def _change(run: Run, change: Any) -> None:
    changes = json.loads(run.row("SELECT changes FROM memory")[0])
    change(changes)
    run.sql("UPDATE memory SET changes = ?", json.dumps(changes))
