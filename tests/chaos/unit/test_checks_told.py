"""I4 and I5: each test breaks a good run in one way, or does what is allowed."""

import json
from dataclasses import replace
from typing import Any

import pytest

from loom_worker.core.values.turns import Ending
from loom_worker.store.outbox import Outbox
from loom_worker.turn.state import TurnState
from tests.chaos.checker import check
from tests.chaos.records import Evidence, Hook, Polled, Read
from tests.chaos.unit.made import NOW_MS, Run, assert_found, changed


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("status", "failed"),
        ("output_text", "T00001.1 said"),
        ("error", '{"type": "limits"}'),
        ("usage", '{"input_tokens": 77, "llm_calls": 1}'),
        ("completed_ms", NOW_MS + 500),
        ("reason", "limits"),
    ],
)
def test_a_turn_that_is_not_as_the_client_was_shown_is_found(run: Run, column: str, value: object) -> None:
    run.sql(f"UPDATE turns SET {column} = ? WHERE id = ?", value, run.id_of("T00001"))
    assert_found(run.evidence(), "I4", "a client was shown")


def test_a_call_that_is_not_as_the_client_was_shown_is_found(run: Run) -> None:
    run.sql("UPDATE calls SET status = 'unknown' WHERE position = 1")
    assert_found(run.evidence(), "I4", "a client was shown tool_calls")


def test_a_turn_that_was_shown_and_is_gone_is_found(run: Run) -> None:
    polled = (*run.polled, Polled("turn_gone", b"{}", 1.0))
    assert_found(run.evidence(polled=polled), "I4", "turn_gone was shown to a client and is not in the database")


def test_each_poll_counts(run: Run) -> None:
    stale = replace(run.polled[0], body=run.polled[0].body.replace(b'"completed"', b'"failed"'))
    assert_found(run.evidence(polled=(*run.polled, stale)), "I4", "a client was shown status 'failed'")


def test_an_answer_that_is_no_json_is_found(run: Run) -> None:
    polled = changed(run.polled, {"turn_id": run.id_of("T00001")}, body=b"<html>")
    assert_found(run.evidence(polled=polled), "I4", "a client was shown id '(nothing)'")


def test_a_webhook_of_a_turn_that_is_gone_is_found(run: Run) -> None:
    hooks = changed(run.hooks, {"turn_id": run.id_of("T00002")}, turn_id="turn_gone")
    assert_found(run.evidence(hooks=hooks), "I4", "turn_gone was told to a receiver")


def test_a_webhook_with_another_body_than_the_outbox_is_found(run: Run) -> None:
    hooks = changed(run.hooks, {"turn_id": run.id_of("T00002")}, body=run.hooks[0].body + b" ")
    assert_found(run.evidence(hooks=hooks), "I4", "another body than the outbox has")


def test_a_webhook_of_another_type_is_found(run: Run) -> None:
    assert_found(
        _retold(run, lambda event: event.update(type="turn.failed")), "I4", "told turn.failed, it is completed"
    )


@pytest.mark.parametrize("name", ["status", "output_text", "tool_calls", "usage", "error", "seq", "attempt"])
def test_a_webhook_whose_data_differs_is_found(run: Run, name: str) -> None:
    assert_found(_retold(run, lambda event: event["data"].update({name: "other"})), "I4", f"was told {name} 'other'")


def test_a_webhook_that_lacks_a_field_is_found(run: Run) -> None:
    assert_found(_retold(run, lambda event: event["data"].pop("usage")), "I4", "was told usage '(nothing)'")


def test_a_webhook_that_had_to_be_cut_is_allowed(run: Run) -> None:
    run.turn("T00005 words=5000", webhook=True)
    assert json.loads(run.hooks[-1].body)["data"]["truncated"] is True
    assert check(run.evidence()) == ()


def test_a_cut_webhook_may_have_the_whole_answer(run: Run) -> None:
    run.turn("T00005 plain " + "please " * 3_500, webhook=True)
    data = json.loads(run.hooks[-1].body)["data"]
    assert data["truncated"] is True
    assert data["output_text"] == run.calls[-1].said
    assert check(run.evidence()) == ()


def test_a_cut_webhook_of_a_turn_without_an_answer_is_allowed(run: Run) -> None:
    text = "T00005 plain " + "please " * 3_500
    run.turn(text, webhook=True, ending=Ending("failed", "provider"))
    submitted = changed(run.submitted, {"mark": "T00005"}, may_fail=True)
    assert check(run.evidence(submitted=submitted)) == ()


def test_a_webhook_without_data_is_found(run: Run) -> None:
    assert_found(_retold(run, lambda event: event.update(data=None)), "I4", "was told status '(nothing)'")


def test_a_cut_webhook_with_another_answer_is_found(run: Run) -> None:
    run.turn("T00005 words=5000", webhook=True)
    assert_found(_retold(run, lambda event: event["data"].update(output_text="T00005.1 no…")), "I4", "told output_text")


def test_a_cut_webhook_with_another_status_is_found(run: Run) -> None:
    run.turn("T00005 words=5000", webhook=True)
    assert_found(_retold(run, lambda event: event["data"].update(status="failed")), "I4", "was told status 'failed'")


def test_a_webhook_that_was_never_written_is_found(run: Run) -> None:
    run.sql("DELETE FROM outbox WHERE turn_id = ?", run.id_of("T00002"))
    assert_found(run.evidence(), "I5", "0 webhooks in the outbox instead of 1")


def test_a_webhook_that_was_written_twice_is_found(run: Run) -> None:
    columns = (
        "workspace, turn_id, url, secret, body, status, attempts, next_ms, last_status, last_error, created_ms, "
        "delivered_ms"
    )
    run.sql(f"INSERT INTO outbox (id, {columns}) SELECT id || 'x', {columns} FROM outbox LIMIT 1")
    assert_found(run.evidence(), "I5", "2 webhooks in the outbox instead of 1")


def test_a_webhook_that_nobody_wanted_is_found(run: Run) -> None:
    run.sql("UPDATE turns SET webhook_url = NULL WHERE id = ?", run.id_of("T00002"))
    assert_found(run.evidence(), "I5", "1 webhooks in the outbox instead of 0")
    assert_found(run.evidence(), "I5", "its webhook was forgotten when it was accepted")


def test_a_webhook_that_the_receiver_never_saw_is_found(run: Run) -> None:
    hooks = tuple(hook for hook in run.hooks if hook.turn_id != run.id_of("T00002"))
    assert_found(run.evidence(hooks=hooks), "I5", "is marked as delivered, the receiver answered []")


def test_a_webhook_that_was_only_refused_is_found(run: Run) -> None:
    hooks = changed(run.hooks, {"turn_id": run.id_of("T00002")}, status=503)
    assert_found(run.evidence(hooks=hooks), "I5", "is marked as delivered, the receiver answered [503]")


def test_a_webhook_without_a_valid_signature_is_found(run: Run) -> None:
    hooks = changed(run.hooks, {"turn_id": run.id_of("T00002")}, is_signed=False)
    assert_found(run.evidence(hooks=hooks), "I5", "is not validly signed")
    assert_found(run.evidence(hooks=hooks), "I5", "is marked as delivered, the receiver answered []")


def test_attempts_that_failed_before_one_that_did_not_are_allowed(run: Run) -> None:
    before = tuple(replace(run.hooks[0], status=status) for status in (503, 0, 302))
    assert check(run.evidence(hooks=(*before, *run.hooks, run.hooks[0]))) == ()


def test_an_attempt_under_another_id_is_found(run: Run) -> None:
    other = replace(run.hooks[0], id="whd_other")
    assert_found(run.evidence(hooks=(*run.hooks, other)), "I5", "told under id 'whd_other', which is not its own")


def test_an_attempt_under_the_id_of_another_turn_is_found(run: Run) -> None:
    other = replace(run.hooks[0], id=run.hooks[1].id)
    assert_found(run.evidence(hooks=(*run.hooks, other)), "I5", "which is not its own in the outbox")


def test_a_redirect_that_was_followed_is_found(run: Run) -> None:
    trapped = Hook("", "", b"", 1.0, False, 204)
    assert_found(run.evidence(hooks=(*run.hooks, trapped)), "I5", "request without id is not validly signed")


def test_a_webhook_that_is_still_pending_is_found(run: Run) -> None:
    run.sql("UPDATE outbox SET status = 'pending', next_ms = 1 WHERE turn_id = ?", run.id_of("T00002"))
    assert_found(run.evidence(), "I5", "is still pending after 1 attempts")


def test_a_webhook_that_was_switched_off_by_its_receiver_is_allowed(run: Run) -> None:
    run.sql("UPDATE outbox SET status = 'disabled' WHERE turn_id = ?", run.id_of("T00002"))
    hooks = changed(run.hooks, {"turn_id": run.id_of("T00002")}, status=410)
    assert check(run.evidence(hooks=hooks)) == ()


def test_a_webhook_that_was_switched_off_by_nobody_is_found(run: Run) -> None:
    run.sql("UPDATE outbox SET status = 'disabled' WHERE turn_id = ?", run.id_of("T00002"))
    assert_found(run.evidence(), "I5", "is disabled, the receiver answered [204]")


def test_a_webhook_that_is_visibly_dead_is_allowed(run: Run) -> None:
    run.sql("UPDATE outbox SET status = 'dead', attempts = 10 WHERE turn_id = ?", run.id_of("T00002"))
    hooks = changed(run.hooks, {"turn_id": run.id_of("T00002")}, status=0)
    assert check(run.evidence(hooks=hooks)) == ()


def test_an_unfinished_turn_owes_no_webhook(run: Run) -> None:
    claim = run.accepted("T00005 plain", webhook=True)
    assert not [each for each in check(run.evidence()) if each.invariant == "I5"]
    run.ended(TurnState.begin(claim), Ending("failed", "provider"))
    assert len(Outbox(run.database).page("default", limit=9, after=None).items) == 3


def _retold(run: Run, change: Any) -> Evidence:
    """The last webhook had another body, in the outbox too."""
    event = json.loads(run.hooks[-1].body)
    change(event)
    body = json.dumps(event)
    run.sql("UPDATE outbox SET body = ? WHERE id = ?", body, run.hooks[-1].id)
    return run.evidence(hooks=(*run.hooks[:-1], replace(run.hooks[-1], body=body.encode())))


def test_a_reader_that_has_another_text_than_the_turn_is_found(run: Run) -> None:
    read = Read(run.id_of("T00001"), "T00001.1 says: something else")
    assert_found(run.evidence(read=(read,)), "I4", "a client has read 'T00001.1 says: something else'")


def test_a_reader_that_has_the_text_of_the_turn_is_allowed(run: Run) -> None:
    turn = run.turn("T00005 tools=note")
    assert check(run.evidence(read=(Read(turn.id, turn.output_text or "", resumed=3),))) == ()


def test_a_reader_of_a_turn_that_was_rolled_back_may_have_read_anything(run: Run) -> None:
    work = run.asked(TurnState.begin(run.accepted("T00005 plain", cancel_actions=("rollback",))))
    turn = run.ended(work, Ending("cancelled", "rollback"), is_kept=False)
    assert check(run.evidence(read=(Read(turn.id, "T00005.1 says"),))) == ()


def test_events_that_are_missing_for_a_reader_are_found(run: Run) -> None:
    (turn_id, text) = run.row("SELECT id, output_text FROM turns LIMIT 1")
    read = Read(turn_id, text or "", flaws=("event 3 turn.started after event 1",))
    assert_found(run.evidence(read=(read,)), "I4", "a client has read event 3 turn.started after event 1")


def test_a_reader_of_a_turn_that_does_not_exist_is_found(run: Run) -> None:
    assert_found(run.evidence(read=(Read("turn_none", ""),)), "I4", "turn_none was read by a client and is not in")
