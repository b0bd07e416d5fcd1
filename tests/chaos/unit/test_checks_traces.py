"""I16: each test breaks what the traces of a good run are made of."""

import json

import pytest

from loom_worker.core.values.turns import Ending
from loom_worker.turn.state import TurnState
from tests.chaos.checker import check
from tests.chaos.unit.judged import judged_run
from tests.chaos.unit.made import Run, assert_found


def test_a_run_with_whole_traces_has_no_violation(run: Run) -> None:
    assert check(run.evidence()) == ()


def test_the_traces_of_judged_turns_are_whole(run: Run) -> None:
    made = judged_run(run)
    assert check(made.evidence()) == ()
    made.sql("UPDATE verdicts SET started_ms = NULL WHERE rowid = (SELECT min(rowid) FROM verdicts)")
    assert_found(made.evidence(), "I16", "verdicts, and judges gave")


def test_a_run_that_nobody_wrote_down_is_found(run: Run) -> None:
    run.sql("UPDATE turns SET trace = json_remove(trace, '$.runs') WHERE id = ?", run.id_of("T00001"))
    assert_found(run.evidence(), "I16", "its trace has 0 runs, and workers took it 1 times")


def test_a_death_that_is_not_told_is_found(run: Run) -> None:
    claim = run.accepted("T00005 plain")
    again = TurnState.begin(run.claimed(claim.turn.lane)).matched("Context.", "", ())
    run.ended(run.asked(again), Ending("failed", "dead"))
    turn_id = run.id_of("T00005")
    # The answer that a client was shown is not what is looked at here.
    found = [each for each in check(run.evidence()) if each.invariant == "I16"]
    assert found == []
    run.sql("UPDATE turns SET deaths = 1, trace = replace(trace, 'died', 'parked') WHERE id = ?", turn_id)
    assert_found(run.evidence(), "I16", "has 0 runs whose workers died, and 1 did")


def test_a_reply_without_times_is_found(run: Run) -> None:
    run.sql("UPDATE steps SET payload = json_remove(payload, '$.times') WHERE turn_id = ?", run.id_of("T00003"))
    assert_found(run.evidence(), "I16", "has 0 replies, the journal 1")


def test_a_call_that_is_not_told_is_found(run: Run) -> None:
    run.sql("UPDATE calls SET started_ms = NULL, finished_ms = NULL WHERE turn_id = ?", run.id_of("T00002"))
    assert_found(run.evidence(), "I16", "does not tell of the calls")


@pytest.mark.parametrize("name", ["webhook.deliver", "other"])
def test_a_delivery_that_is_not_told_is_found(run: Run, name: str) -> None:
    turn_id = run.id_of("T00002")
    change = json.dumps({"status": "Error"} if name == "webhook.deliver" else {"name": name})
    run.sql("UPDATE spans SET body = json_patch(body, ?) WHERE turn_id = ?", change, turn_id)
    assert_found(run.evidence(), "I16", f"does not tell how ['whd_{turn_id}'] were delivered")


def test_an_id_that_is_there_twice_is_found(run: Run) -> None:
    run.sql(
        "INSERT INTO spans (turn_id, added_ms, body) SELECT turn_id, added_ms, body FROM spans WHERE turn_id = ?",
        run.id_of("T00002"),
    )
    assert_found(run.evidence(), "I16", "has ids twice, of ['webhook.deliver']")


def test_a_span_without_a_parent_is_found(run: Run) -> None:
    change = json.dumps({"parent_id": "f" * 16})
    run.sql("UPDATE spans SET body = json_patch(body, ?) WHERE turn_id = ?", change, run.id_of("T00002"))
    assert_found(run.evidence(), "I16", "has no parent of ['webhook.deliver']")


def test_a_span_without_an_end_is_found(run: Run) -> None:
    run.sql("UPDATE spans SET body = json_set(body, '$.end_us', NULL) WHERE turn_id = ?", run.id_of("T00002"))
    assert_found(run.evidence(), "I16", "has no end of ['webhook.deliver']")


def test_a_turn_that_goes_on_is_not_looked_at(run: Run) -> None:
    run.accepted("T00005 plain")
    assert [each for each in check(run.evidence()) if each.invariant == "I16"] == []


def test_effects_count_also_where_the_call_has_no_result(run: Run) -> None:
    nonces = {effect.nonce for effect in run.effects}
    run.sql("UPDATE calls SET status = 'cancelled', started_ms = NULL, finished_ms = NULL")
    assert nonces
    assert_found(run.evidence(), "I16", "does not tell of the calls")
    assert [each for each in check(run.evidence(effects=())) if each.invariant == "I16"] == []
