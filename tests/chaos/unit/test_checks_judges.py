"""I8 and I14 of judges: each test breaks a run with judged turns that kept every promise."""

from dataclasses import replace
from typing import Any

import pytest

from loom_worker.core.values.turns import Ending
from tests.chaos.checker import check, figures
from tests.chaos.records import Injection, ModelCall
from tests.chaos.unit.judged import (
    GIVEN_ANEW,
    PASSED,
    SESSION,
    again,
    answer_of,
    begun,
    heard,
    judge_call,
    judged,
    judged_run,
    judged_turn,
    looked,
    sent,
)
from tests.chaos.unit.made import Run, assert_found, changed


@pytest.fixture
def made(run: Run) -> Run:
    return judged_run(run)


def test_a_run_with_judges_that_kept_every_promise_has_no_violation(made: Run) -> None:
    assert check(made.evidence()) == ()
    shown = figures(made.evidence())
    assert (shown["judged_answers"], shown["answers_given_anew"], shown["judge_requests"]) == (3, 1, 6)
    assert (shown["verdicts_repeated"], shown["verdicts_dead"], shown["read"]) == (0, 0, 2)


def test_a_verdict_that_is_asked_for_again_once_it_is_stored_is_found(made: Run) -> None:
    late = _again(made, is_complete=False)
    assert_found(made.evidence(), "I8", f"is stored and was asked for again, request {late.number}")
    slept = Injection("stop", "turns-1", late.began_s - 1, late.began_s - 0.5)
    assert check(made.evidence(injections=(slept,))) == ()


def test_a_verdict_that_was_lost_without_any_reason_is_found(made: Run) -> None:
    lost = _lost(made)
    assert_found(made.evidence(), "I8", f"was whole (request {lost.number}), unused, and asked for again")
    kill = Injection("kill", "turns-1", lost.ended_s + 0.1, lost.ended_s + 0.4)
    assert_found(made.evidence(injections=(kill,)), "I8", "was whole")
    gone = changed(made.calls, {"number": lost.number}, connection_gone_s=kill.at_s + 0.1)
    evidence = made.evidence(model_calls=gone, injections=(kill,))
    assert check(evidence) == ()
    assert figures(evidence)["verdicts_repeated"] == 1


def test_a_verdict_that_came_in_part_may_be_asked_for_again(made: Run) -> None:
    lost = _lost(made)
    assert check(made.evidence(model_calls=changed(made.calls, {"number": lost.number}, is_complete=False))) == ()


def test_a_verdict_that_was_paid_for_six_times_is_found(made: Run) -> None:
    *_, last = (_again(made) for _ in range(5))
    slept = Injection("stop", "turns-1", 1000, last.ended_s)
    assert_found(made.evidence(injections=(slept,)), "I8", "was paid for 6 times")


def test_an_answer_that_was_judged_before_it_was_journaled_is_found(made: Run) -> None:
    made.sql("DELETE FROM verdicts WHERE turn_id = ? AND name = 'second'", made.id_of(PASSED))
    assert_found(made.evidence(), "I8", "the verdict of second on reply 1 was asked for, and the database has none")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ("UPDATE turns SET judge = NULL WHERE id = ?", "says that None answers were judged, its journal has"),
        (
            "UPDATE turns SET judge = json_set(judge, '$.attempts', 3) WHERE id = ?",
            "says that 3 answers were judged, its journal has",
        ),
        (
            "UPDATE turns SET judge = json_set(judge, '$.passed', json('false')) WHERE id = ?",
            "says something else of its answer than its judges",
        ),
        ("UPDATE turns SET agent = 'default' WHERE id = ?", "was judged, and its agent has no judges"),
        (
            "UPDATE verdicts SET score = 0.5 WHERE turn_id = ? AND name = 'first'",
            "the score 0.5 of first, the model said",
        ),
        ("UPDATE verdicts SET score = 0.5 WHERE turn_id = ? AND name = 'words'", "was judged by [0.9, 0.9, 1.0], not"),
        ("DELETE FROM verdicts WHERE turn_id = ? AND name = 'words'", "was judged by [0.9, 0.9, 1.0], not [0.9, 0.9]"),
    ],
)
def test_what_a_judged_turn_says_wrongly_is_found(made: Run, change: str, text: str) -> None:
    made.sql(change, made.id_of(PASSED))
    assert_found(made.evidence(), "I14", text)


def test_a_completed_turn_that_nobody_judged_is_found(made: Run) -> None:
    work = made.asked(begun(made, "T00013 plain"))
    made.ended(work, Ending("completed", output_text=work.said))
    assert_found(made.evidence(), "I14", "says that None answers were judged, its journal has 0")


def test_an_answer_that_passed_wrongly_is_found(made: Run) -> None:
    _judged_step(made, GIVEN_ANEW, 0, "passed", "true")
    assert_found(made.evidence(), "I14", "passed: True, its scores are [0.2, 0.2, 1.0]")


def test_an_answer_that_falls_short_and_is_given_all_the_same_is_found(made: Run) -> None:
    _judged_step(made, GIVEN_ANEW, 0, "is_last", "true")
    assert_found(made.evidence(), "I14", "with [0.2, 0.2, 1.0] is the last answer, after 0 others")


def test_an_answer_that_falls_short_may_be_the_last_where_the_client_wants_an_end(made: Run) -> None:
    work = judged(made, made.asked(begun(made, "T00013 judged=fail")))
    turn = made.ended(work, Ending("completed", output_text=work.said))
    _judged_step(made, "T00013", 0, "is_last", "true")
    hurried = changed(made.submitted, {"turn_id": turn.id}, cancel_actions=("finish",))
    assert check(made.evidence(submitted=hurried)) == ()


def test_an_answer_that_was_to_be_given_anew_stands_only_where_the_model_could_not_be_asked(made: Run) -> None:
    made.sql("UPDATE sessions SET budget = NULL WHERE id = ?", SESSION)
    work = judged(made, made.asked(begun(made, "T00013 judged=fail")))
    failed = made.model_call(work, status=500, is_complete=False)
    made.ended(work, Ending("completed", output_text=work.said))
    assert check(made.evidence()) == ()
    made.calls.remove(failed)
    assert_found(made.evidence(), "I14", "was to be given anew, and is the answer")
    made.sql("""UPDATE turns SET budget = '{"tokens": 50000}' WHERE id = ?""", made.id_of("T00013"))
    assert [each.invariant for each in check(made.evidence())] == ["I4"]  # the client was shown no budget


def test_an_answer_that_passed_and_is_given_anew_is_found(made: Run) -> None:
    _judged_step(made, PASSED, 0, "is_last", "false")
    assert_found(made.evidence(), "I14", "with [0.9, 0.9, 1.0] was given anew, after 0 others")


def test_the_last_answer_may_fall_short(made: Run) -> None:
    turn = judged_turn(made, "T00013 judged=fail")
    assert turn.judge is not None
    assert (turn.judge["attempts"], turn.judge["passed"]) == (3, False)
    assert check(made.evidence()) == ()


def test_an_answer_that_was_given_anew_and_stays_in_the_conversation_is_found(made: Run) -> None:
    content = "UPDATE messages SET content = ? WHERE turn_id = ? AND role = 'assistant'"
    made.sql(content, f"{GIVEN_ANEW}.1 says: thread", made.id_of(GIVEN_ANEW))
    assert_found(made.evidence(), "I14", "holds an answer that was given anew")


def test_what_was_said_before_calls_of_tools_goes_with_the_answer(made: Run) -> None:
    turn = judged_turn(made, "T00013 tools=note judged=fail,pass")
    assert turn.output_text == "T00013.3 says: anew-1 thread over warp under weft and back again"
    assert check(made.evidence()) == ()
    made.sql("UPDATE messages SET content = 'T00013.1 asks' WHERE turn_id = ? AND tool_calls_json <> 'null'", turn.id)
    assert_found(made.evidence(), "I14", "holds an answer that was given anew: 'T00013.1 asks'")


def test_an_answer_that_was_given_anew_and_is_shown_to_a_later_turn_is_found(made: Run) -> None:
    later = next(call for call in made.calls if call.mark == PASSED and call.look is None)
    messages = [
        {**message, "content": f"{GIVEN_ANEW}.1 says: thread"} if message["role"] == "assistant" else message
        for message in later.body["messages"]
    ]
    calls = changed(made.calls, {"number": later.number}, body={**later.body, "messages": messages})
    assert_found(made.evidence(model_calls=calls), "I14", f"shows {GIVEN_ANEW}.1, which was given anew")


def test_an_open_verdict_at_rest_is_found(made: Run) -> None:
    made.sql("UPDATE verdicts SET status = 'running' WHERE turn_id = ? AND position = 1", made.id_of(PASSED))
    assert_found(made.evidence(), "I9", "the verdict of second on reply 1 is running")


def test_a_verdict_of_a_cancelled_turn_is_no_violation(made: Run) -> None:
    work = sent(made, made.asked(begun(made, "T00013 plain")))
    owner = answer_of(made, work)
    looked(made, work, owner, work.verdicts[0])
    work = again(made, work)
    turn = made.ended(work, Ending("cancelled", "interrupt", output_text=work.said))
    cancelled = changed(made.submitted, {"turn_id": turn.id}, cancel_actions=("interrupt",))
    assert check(made.evidence(submitted=cancelled)) == ()


def _again(made: Run, **fields: Any) -> ModelCall:
    """A judge of the turn that passed is asked once more, after everything else."""
    call = next(call for call in made.calls if call.look is not None and call.look.key == (PASSED, 1, "first"))
    number = len(made.calls) + 1
    made.calls.append(replace(call, number=number, began_s=made.now_s(), ended_s=made.now_s(), **fields))
    return made.calls[-1]


def _lost(made: Run) -> ModelCall:
    """A judge whose verdict did not get into the database is asked again."""
    work = sent(made, made.asked(begun(made, "T00013 plain")))
    owner = answer_of(made, work)
    lost = judge_call(made, owner, "first")
    work = heard(made, work)
    made.ended(work, Ending("completed", output_text=work.said))
    return lost


def _judged_step(made: Run, mark: str, place: int, name: str, value: str) -> None:
    """Change what the journal has of a turn's judged answer."""
    steps = "SELECT n FROM steps WHERE turn_id = ? AND kind = 'judged' ORDER BY n LIMIT 1 OFFSET ?"
    (n,) = made.row(steps, made.id_of(mark), place)
    made.sql(
        f"UPDATE steps SET payload = json_set(payload, '$.{name}', json('{value}')) WHERE turn_id = ? AND n = ?",
        made.id_of(mark),
        n,
    )
