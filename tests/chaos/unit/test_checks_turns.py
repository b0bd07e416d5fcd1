"""I1 to I3 in the database: each test breaks a good run in one way, or does what is allowed."""

from dataclasses import replace

from loom_worker.core.values.turns import Ending
from loom_worker.turn.state import TurnState
from tests.chaos.checker import check
from tests.chaos.unit.made import Run, assert_found, changed


def test_a_lost_turn_is_found(run: Run) -> None:
    for table in ("steps", "messages", "usage"):
        run.sql(f"DELETE FROM {table} WHERE turn_id = ?", run.id_of("T00001"))
    run.sql("DELETE FROM turns WHERE id = ?", run.id_of("T00001"))
    assert_found(run.evidence(), "I1", "T00001: ")
    assert_found(run.evidence(), "I1", "was accepted and is not in the database")


def test_a_turn_that_never_ended_is_found(run: Run) -> None:
    run.accepted("T00005 plain")
    assert_found(run.evidence(), "I1", "accepted, never ended: in_progress")


def test_an_answer_for_another_turn_is_found(run: Run) -> None:
    submitted = changed(run.submitted, {"mark": "T00001"}, turn_id=run.id_of("T00004"))
    assert_found(run.evidence(submitted=submitted), "I1", "accepted for T00001")


def test_a_turn_in_another_session_is_found(run: Run) -> None:
    submitted = changed(run.submitted, {"mark": "T00003"}, session="s7")
    assert_found(run.evidence(submitted=submitted), "I1", "accepted for session s7")


def test_two_answers_to_one_key_are_found(run: Run) -> None:
    answers = (run.id_of("T00001"), "turn_other")
    submitted = changed(run.submitted, {"mark": "T00001"}, answers=answers)
    assert_found(run.evidence(submitted=submitted), "I1", "the same key was also answered turn_other")


def test_a_repeated_answer_to_one_key_is_allowed(run: Run) -> None:
    submitted = changed(run.submitted, {"mark": "T00001"}, answers=(run.id_of("T00001"),) * 3)
    assert check(run.evidence(submitted=submitted)) == ()


def test_a_turn_that_was_accepted_twice_is_found(run: Run) -> None:
    run.sql("UPDATE turns SET input = 'T00001 plain' WHERE id = ?", run.id_of("T00004"))
    assert_found(run.evidence(), "I1", "T00001 was sent once, and the database has")


def test_a_turn_whose_202_nobody_saw_is_allowed(run: Run) -> None:
    run.turn("T00005 plain")
    assert check(run.evidence(submitted=tuple(run.submitted[:-1]))) == ()


def test_a_cancel_that_nobody_wished_is_found(run: Run) -> None:
    run.turn("T00005 plain", ending=Ending("cancelled", "interrupt"))
    assert_found(run.evidence(), "I1", "cancelled, and nobody asked for that")


def test_a_doubled_user_message_is_found(run: Run) -> None:
    _repeat_message(run, "T00001", "user")
    assert_found(run.evidence(), "I2", "2 messages of the user")


def test_a_doubled_answer_is_found(run: Run) -> None:
    _repeat_message(run, "T00001", "assistant")
    assert_found(run.evidence(), "I2", "2 final answers")
    assert_found(run.evidence(), "I2", "keeps reply T00001.1 2 times")


def test_a_missing_user_message_is_found(run: Run) -> None:
    run.sql("DELETE FROM messages WHERE turn_id = ? AND role = 'user'", run.id_of("T00001"))
    assert_found(run.evidence(), "I2", "does not begin with the user's message")


def test_a_changed_user_message_is_found(run: Run) -> None:
    run.sql("UPDATE messages SET content = 'T00001 plai' WHERE content = 'T00001 plain'")
    assert_found(run.evidence(), "I2", "does not begin with the user's message, as it was sent")


def test_a_missing_answer_is_found(run: Run) -> None:
    run.sql("DELETE FROM messages WHERE turn_id = ? AND role = 'assistant'", run.id_of("T00001"))
    assert_found(run.evidence(), "I2", "completed without a final answer")


def test_a_completed_turn_without_any_message_is_found(run: Run) -> None:
    run.sql("DELETE FROM messages WHERE turn_id = ?", run.id_of("T00001"))
    assert_found(run.evidence(), "I2", "completed without a final answer")


def test_messages_after_the_answer_are_found(run: Run) -> None:
    last = run.row("SELECT max(n) FROM messages")[0]
    results = "SELECT max(n) FROM messages WHERE turn_id = ? AND role = 'tool'"
    run.sql(f"UPDATE messages SET n = ? WHERE n = ({results})", last + 1, run.id_of("T00002"))
    assert_found(run.evidence(), "I2", "goes on after its final answer")


def test_a_final_message_that_is_not_the_answer_is_found(run: Run) -> None:
    run.sql("UPDATE turns SET output_text = 'another' WHERE id = ?", run.id_of("T00001"))
    assert_found(run.evidence(), "I2", "its messages do not say its output_text")


def test_half_a_reply_taken_for_an_answer_is_found(run: Run) -> None:
    turn_id = run.id_of("T00001")
    run.sql("UPDATE messages SET content = 'T00001.1 says:' WHERE turn_id = ? AND role <> 'user'", turn_id)
    assert_found(run.evidence(), "I2", "its answer is not what the model said: 'T00001.1 says:'")


def test_a_reply_that_was_not_sent_whole_taken_for_an_answer_is_found(run: Run) -> None:
    calls = changed(run.calls, {"mark": "T00001"}, is_complete=False, fault="cut")
    assert_found(run.evidence(model_calls=calls), "I2", "its answer is not what the model said")


def test_an_answer_to_another_turn_is_found(run: Run) -> None:
    said = run.calls[-1].said
    turn_id = run.id_of("T00001")
    run.sql("UPDATE messages SET content = ? WHERE turn_id = ? AND role <> 'user'", said, turn_id)
    assert_found(run.evidence(), "I2", "keeps T00004.1, a reply to another turn")


def test_a_turn_that_failed_before_any_reply_is_allowed(run: Run) -> None:
    run.turn("T00005 plain", ending=Ending("failed", "provider", error={"type": "provider"}))
    assert check(run.evidence(submitted=changed(run.submitted, {"mark": "T00005"}, may_fail=True))) == ()


def test_a_turn_that_failed_between_its_replies_is_allowed(run: Run) -> None:
    work = run.asked(TurnState.begin(run.accepted("T00005 tools=note", may_fail=True)).matched("", "", ()))
    run.ended(run.ran_tools(work), Ending("incomplete", "limits"))
    assert check(run.evidence()) == ()


def test_a_failed_turn_without_its_question_is_found(run: Run) -> None:
    run.turn("T00005 plain", ending=Ending("failed", "provider"))
    run.sql("DELETE FROM messages WHERE turn_id = ?", run.id_of("T00005"))
    assert_found(run.evidence(), "I2", "ended without the user's message")


def test_a_rollback_that_leaves_nothing_is_allowed(run: Run) -> None:
    work = run.asked(
        TurnState.begin(run.accepted("T00005 tools=note", cancel_actions=("rollback",))).matched("", "", ())
    )
    run.ended(run.ran_tools(work), Ending("cancelled", "rollback"), is_kept=False)
    run.turn("T00006 plain")
    assert check(run.evidence()) == ()


def test_a_rollback_that_leaves_something_is_found(run: Run) -> None:
    work = run.asked(TurnState.begin(run.accepted("T00005 plain", cancel_actions=("rollback",))).matched("", "", ()))
    run.ended(work, Ending("cancelled", "rollback"))
    assert_found(run.evidence(), "I2", "rolled back, and keeps 2 messages")


def test_an_interrupt_that_keeps_what_was_said_is_allowed(run: Run) -> None:
    work = run.asked(TurnState.begin(run.accepted("T00005 plain", cancel_actions=("interrupt",))).matched("", "", ()))
    run.ended(work, Ending("cancelled", "interrupt", output_text=work.said))
    run.turn("T00006 plain")
    assert check(run.evidence()) == ()


def test_an_interrupt_that_loses_what_was_said_is_found(run: Run) -> None:
    work = run.asked(TurnState.begin(run.accepted("T00005 plain", cancel_actions=("interrupt",))).matched("", "", ()))
    run.ended(work, Ending("cancelled", "interrupt"), is_kept=False)
    assert_found(run.evidence(), "I2", "interrupted after it had said something, and keeps nothing")


def test_an_interrupted_turn_that_a_later_message_came_too_late_to_roll_back_is_allowed(run: Run) -> None:
    claim = run.accepted("T00005 plain", cancel_actions=("interrupt", "rollback"))
    work = run.asked(TurnState.begin(claim).matched("", "", ()))
    run.ended(work, Ending("cancelled", "interrupt", output_text=work.said))
    run.turn("T00006 plain")
    assert check(run.evidence()) == ()


def test_a_turn_that_ended_otherwise_than_its_client_asked_is_found(run: Run) -> None:
    work = run.asked(TurnState.begin(run.accepted("T00005 plain", cancel_actions=("rollback",))).matched("", "", ()))
    run.ended(work, Ending("cancelled", "interrupt", output_text=work.said))
    assert_found(run.evidence(), "I2", "cancelled by interrupt, and asked for was rollback")


def test_a_turn_cancelled_before_it_began_is_allowed(run: Run) -> None:
    for number, cancel_action in enumerate(("interrupt", "rollback"), 5):
        work = TurnState.begin(run.accepted(f"T0000{number} plain", cancel_actions=(cancel_action,)))
        run.ended(work, Ending("cancelled", cancel_action), is_kept=False)
    assert check(run.evidence()) == ()


def test_turns_in_another_order_than_accepted_are_found(run: Run) -> None:
    orders = {"T00001": 1, "T00002": 0, "T00003": 0, "T00004": 2}
    submitted = tuple(replace(sent, order=orders[sent.mark]) for sent in run.submitted)
    assert_found(run.evidence(submitted=submitted), "I3", "was accepted before T00001")


def test_messages_in_another_order_than_their_turns_are_found(run: Run) -> None:
    turn_id = run.id_of("T00001")
    last = run.row("SELECT max(n) FROM messages")[0]
    run.sql("UPDATE messages SET n = n + ? WHERE turn_id = ?", last, turn_id)
    assert_found(run.evidence(), "I3", "T00001")
    assert_found(run.evidence(), "I3", "has messages after those of T00004")


def test_a_turn_whose_messages_stand_in_two_places_is_found(run: Run) -> None:
    last = run.row("SELECT max(n) FROM messages")[0]
    turn_id = run.id_of("T00001")
    run.sql("UPDATE messages SET n = ? WHERE turn_id = ? AND role = 'assistant'", last + 1, turn_id)
    assert_found(run.evidence(), "I3", "has messages after those of T00004")


def _repeat_message(run: Run, mark: str, role: str) -> None:
    names = [name for name in _COLUMNS if name not in {"n", "id"}]
    columns = ", ".join(names)
    one = f"SELECT id || 'x', {columns} FROM messages WHERE turn_id = ? AND role = ?"
    run.sql(f"INSERT INTO messages (id, {columns}) {one}", run.id_of(mark), role)


_COLUMNS = (
    "n id lane session_id turn_id role content context tool_calls_json tool_use_id tool_result_json opaque_json "
    "token_count cost_usd usage created_ms"
).split()
