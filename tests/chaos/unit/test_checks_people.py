"""I12, and how people are asked: each test breaks a good run in one way, or does what is allowed."""

import json
from dataclasses import replace
from typing import Any, Literal

import pytest

from loom_worker.core.values.turns import Ending
from loom_worker.turn.state import TurnState
from tests.chaos.checker import check
from tests.chaos.records import Decided, Effect, Hook
from tests.chaos.unit.made import Run, assert_found


@pytest.mark.parametrize("verdict", ["approve", "reject"])
def test_a_call_that_a_person_decided_on_breaks_no_promise(run: Run, verdict: Literal["approve", "reject"]) -> None:
    _asked(run, verdict)
    assert check(run.evidence()) == ()


def test_an_effect_of_a_rejected_call_is_found(run: Run) -> None:
    _asked(run, "reject")
    effects = (*run.effects, Effect("refund", "T00005-1-0", run.now_s()))
    assert_found(run.evidence(effects=effects), "I12", "had an effect, and its approval is rejected")


def test_an_effect_of_a_call_that_nobody_was_asked_about_is_found(run: Run) -> None:
    _asked(run, "approve")
    run.sql("UPDATE calls SET approval = NULL WHERE name = 'refund'")
    assert_found(run.evidence(), "I12", "had an effect, and its approval is None")


def test_an_effect_before_anybody_agreed_is_found(run: Run) -> None:
    _asked(run, "approve")
    *others, refund = run.effects
    early = replace(refund, at_s=run.decided[0].began_s - 1)
    assert_found(run.evidence(effects=(*others, early)), "I12", "had an effect before anybody agreed")


def test_two_effects_of_an_approved_call_are_found(run: Run) -> None:
    _asked(run, "approve")
    again = replace(run.effects[-1], at_s=run.now_s())
    assert_found(run.evidence(effects=(*run.effects, again)), "I8", "refund T00005-1-0 ran 2 times")


def test_a_verdict_that_nobody_gave_is_found(run: Run) -> None:
    _asked(run, "approve")
    assert_found(run.evidence(decided=()), "I12", "is approved, and nobody has said so")


def test_a_verdict_that_was_confirmed_and_turned_round_is_found(run: Run) -> None:
    _asked(run, "reject")
    opposite = _with(run, verdict="approve")
    assert_found(run.evidence(decided=opposite), "I12", "somebody was told that it is approved")


def test_an_approved_call_that_was_denied_is_found(run: Run) -> None:
    _asked(run, "approve")
    run.sql("UPDATE calls SET status = 'denied' WHERE name = 'refund'")
    assert_found(run.evidence(), "I12", "was approved, and denied all the same")


def test_a_first_decision_that_is_refused_is_found(run: Run) -> None:
    _asked(run, "approve")
    assert_found(run.evidence(decided=_with(run, answers=(409,))), "I12", "for the first time, and the answer was 409")


@pytest.mark.parametrize("lost", [0, 503])
def test_a_decision_whose_first_answer_was_lost_may_be_refused(run: Run, lost: int) -> None:
    _asked(run, "approve")
    assert check(run.evidence(decided=_with(run, answers=(lost, 409)))) == ()


@pytest.mark.parametrize("status", [404, 422])
def test_any_other_answer_to_a_decision_is_found(run: Run, status: int) -> None:
    _asked(run, "approve")
    assert_found(run.evidence(decided=_with(run, answers=(status,))), "I12", f"the answer was {status}")


def test_the_opposite_decision_is_refused_or_found(run: Run) -> None:
    _asked(run, "approve")
    assert check(run.evidence(decided=_with(run, opposed=409))) == ()
    assert_found(run.evidence(decided=_with(run, opposed=200)), "I12", "the second answer was 200")


def test_a_call_that_was_shown_as_waiting_after_it_was_decided_is_found(run: Run) -> None:
    _asked(run, "approve")
    assert_found(run.evidence(decided=(*run.decided, *run.decided)), "I12", "was shown as waiting after")


def test_a_run_without_any_decision_on_its_questions_proves_nothing(run: Run) -> None:
    submitted = (replace(run.submitted[0], asks_person=True), *run.submitted[1:])
    assert_found(run.evidence(submitted=submitted), "I10", "no decision was made")


def test_a_turn_that_waits_for_a_person_at_rest_is_found(run: Run) -> None:
    run.asked(TurnState.begin(run.accepted("T00005 tools=refund")).matched("", "", ()))
    run.sql("UPDATE turns SET status = 'requires_action', held_by = NULL WHERE id = ?", run.id_of("T00005"))
    assert_found(run.evidence(), "I9", "is requires_action")


def test_a_question_that_its_webhook_told_breaks_no_promise(run: Run) -> None:
    _told(run)
    assert check(run.evidence()) == ()


def test_a_question_that_no_webhook_told_is_found(run: Run) -> None:
    _asked(run, "approve", webhook=True)
    assert_found(run.evidence(), "I5", "0 questions to a person in the outbox instead of 1")


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"status": "completed"}, "status 'completed'"),
        ({"seq": 99}, "seq '99'"),
        ({"tool_calls": []}, "that [] wait for a person"),
    ],
)
def test_a_question_that_is_told_wrongly_is_found(run: Run, changes: dict[str, Any], what: str) -> None:
    _told(run, **changes)
    assert_found(run.evidence(), "I4", f"a receiver was told {what}")


def _asked(run: Run, verdict: Literal["approve", "reject"], *, webhook: bool = False) -> TurnState:
    """A fifth turn, whose one call a person decides on; it has ended."""
    work = run.asked(TurnState.begin(run.accepted("T00005 tools=refund", webhook=webhook)).matched("", "", ()))
    work = run.ran_tools(run.answered(work, verdict))
    work = run.asked(work)
    run.ended(work, Ending("completed", output_text=work.said))
    return work


def _told(run: Run, **changes: Any) -> None:
    """Such a turn whose question came to its webhook, with changes in its data."""
    turn_id = _asked(run, "approve", webhook=True).turn.id
    shown = json.loads(next(poll.body for poll in run.polled if poll.turn_id == turn_id))
    waiting = [{**call, "approval": "waiting"} for call in shown["tool_calls"]]
    data = {**shown, "status": "requires_action", "tool_calls": waiting, **changes}
    body = json.dumps({"type": "turn.requires_action", "timestamp": "2027-01-15T08:00:00Z", "data": data})
    same = "workspace, turn_id, url, status, attempts, created_ms"
    asking = f"INSERT INTO outbox (id, body, {same}) SELECT 'whd_asked', ?, {same} FROM outbox WHERE turn_id = ?"
    run.sql(asking, body, turn_id)
    run.hooks.append(Hook("whd_asked", turn_id, body.encode(), run.now_s(), True, 204))


def _with(run: Run, **changes: Any) -> tuple[Decided, ...]:
    return tuple(replace(each, **changes) for each in run.decided)
