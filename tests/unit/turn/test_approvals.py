"""A person in the loop: the turn waits without a slot, survives what comes, and heeds what was said."""

from dataclasses import replace
from typing import Any

import pytest

from loom_worker.core.errors import Conflict, NotFound
from loom_worker.core.values.agents import Agent, ApprovalPolicy
from loom_worker.core.values.chat import Reply
from loom_worker.core.values.decisions import Decision
from loom_worker.core.values.turns import Turn
from loom_worker.core.values.webhooks import Webhook
from loom_worker.store import approvals
from loom_worker.store.journal import Journal
from loom_worker.store.sessions import Sessions
from loom_worker.turn.entrypoints import serve_call
from tests.support.models import says, wants
from tests.support.stage import WORKSPACE, Stage

PAY = wants(("pay", {}))
HOOK = Webhook("https://example.com/hook")


@pytest.fixture
def asking(stage: Stage) -> Stage:
    """A stage whose agent asks before it pays, for a minute."""
    stage.agent = Agent("default", system_prompt="You help.", approval=ApprovalPolicy(("pay",), timeout_s=60))
    return stage


def waiting(stage: Stage, *scenes: Any, **new: Any) -> Turn:
    stage.model.scenes = [*scenes]
    return stage.serve(stage.submit(**new), stage.worker("w1"))


def decide(stage: Stage, turn: Turn, verdict: Any, call: str = "toolu_1", **said: Any) -> Turn:
    done = approvals.decide(stage.database, WORKSPACE, turn.id, call, Decision(verdict, **said), now_ms=stage.now_ms)
    if stage.lanes.alert(turn.lane):
        stage.book.woken.append(turn.lane)
    return done


def test_a_call_that_needs_a_person_leaves_the_turn_waiting_without_a_slot(asking: Stage) -> None:
    turn = waiting(asking, PAY)
    assert (turn.status, asking.ran, asking.held_by(turn)) == ("requires_action", [], None)
    assert [(call.status, call.approval) for call in turn.calls] == [("pending", "waiting")]
    assert asking.told(turn)[-1] == "approval.required"
    assert Sessions(asking.database).get(WORKSPACE, turn.session_id).is_busy
    assert asking.lane_state(turn) == "parked"
    assert asking.live(turn) == asking.rebuilt(turn)


def test_a_person_is_asked_only_when_the_call_can_be_decided(asking: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    save, told, turn = Journal.save, list[list[str]](), asking.submit()
    monkeypatch.setattr("loom_worker.events.writer.TOGETHER_S", 0)
    monkeypatch.setattr(Journal, "save", lambda *args, **named: told.append(asking.told(turn)) or save(*args, **named))
    asking.model.scenes = [wants(("pay", {}), ("note", {}))]
    turn = asking.serve(turn, asking.worker("w1"))
    assert (turn.status, "approval.required" in told[-1]) == ("requires_action", False)
    assert asking.told(turn)[-2:] == ["approval.required", "tool_call.started"]
    assert asking.live(turn) == asking.rebuilt(turn)


def test_an_approved_call_runs_and_the_turn_goes_on(asking: Stage) -> None:
    turn = waiting(asking, PAY, says("Paid."))
    decide(asking, turn, "approve")
    assert asking.book.woken == [turn.lane]
    by = asking.worker("w2")
    asking.serve(turn, by)
    asking.answer_calls(turn, by)
    turn = asking.serve(turn, by)
    assert (turn.status, turn.output_text, asking.ran) == ("completed", "Paid.", ["pay"])
    assert [(call.status, call.approval) for call in turn.calls] == [("completed", "approved")]


def test_a_rejected_call_does_not_run_and_the_model_reads_why(asking: Stage) -> None:
    turn = waiting(asking, PAY, says("As you wish."))
    decide(asking, turn, "reject", reason="Too much.")
    turn = asking.serve(turn, asking.worker("w2"))
    assert (turn.status, asking.ran) == ("completed", [])
    assert [(call.status, call.approval, call.content) for call in turn.calls] == [
        ("denied", "rejected", "Denied by a person: Too much.")
    ]
    assert asking.said()[2].outcomes[0].is_error


def test_an_edited_call_runs_with_the_arguments_of_the_person(asking: Stage) -> None:
    asking.agent = replace(asking.agent, approval=ApprovalPolicy(("*",)))
    turn = waiting(asking, wants(("add", {"a": 1, "b": 2})), says("Done."))
    decide(asking, turn, "edit", arguments={"a": 40, "b": 2})
    by = asking.worker("w2")
    asking.serve(turn, by)
    turn = asking.answer_calls(turn, by)
    assert [(call.arguments, call.content) for call in turn.calls] == [({"a": 40, "b": 2}, "42")]


def test_deciding_twice_is_a_conflict_and_changes_nothing(asking: Stage) -> None:
    turn = waiting(asking, PAY)
    decide(asking, turn, "approve")
    with pytest.raises(Conflict, match="already decided: approved") as refused:
        decide(asking, turn, "reject")
    assert refused.value.slug == "already-decided"
    assert asking.turn(turn).calls[0].approval == "approved"


def test_only_a_call_that_waits_can_be_decided_on(asking: Stage) -> None:
    turn = waiting(asking, wants(("add", {"a": 1, "b": 2}), ("pay", {})))
    with pytest.raises(Conflict, match="needs no approval"):
        decide(asking, turn, "approve", "toolu_1")
    with pytest.raises(NotFound):
        decide(asking, turn, "approve", "toolu_9")
    with pytest.raises(NotFound):
        approvals.decide(asking.database, "other", turn.id, "toolu_2", Decision("approve"), now_ms=1)


def test_a_turn_that_was_cancelled_meanwhile_cannot_be_decided_on(asking: Stage) -> None:
    turn = waiting(asking, PAY)
    asking.cancel(turn, "interrupt")
    asking.serve(turn, asking.worker("w2"))
    with pytest.raises(Conflict, match="already decided"):
        decide(asking, turn, "approve")
    assert asking.turn(turn).status == "cancelled"


def test_what_needs_nobody_runs_while_a_person_is_asked(asking: Stage) -> None:
    turn = waiting(asking, wants(("add", {"a": 1, "b": 2}), ("pay", {})), says("Done."))
    assert turn.status == "requires_action"
    by = asking.worker("w2")
    turn = asking.answer_calls(turn, by)
    assert [call.status for call in turn.calls] == ["completed", "pending"]
    assert asking.serve(turn, by).status == "requires_action"
    decide(asking, turn, "approve", "toolu_2")
    asking.serve(turn, by)
    asking.answer_calls(turn, by)
    assert asking.serve(turn, by).status == "completed"


@pytest.mark.parametrize(("on_timeout", "ran", "status"), [("deny", [], "denied"), ("approve", ["pay"], "completed")])
def test_when_nobody_answers_in_time_the_policy_holds(
    asking: Stage, on_timeout: Any, ran: list[str], status: str
) -> None:
    asking.agent = replace(asking.agent, approval=replace(asking.agent.approval, on_timeout=on_timeout))
    turn = waiting(asking, PAY, says("Done."))
    asking.now_ms += 60_000
    asking.lapse(turn)
    by = asking.worker("w2")
    turn = asking.serve(turn, by)
    if ran:
        asking.answer_calls(turn, by)
        turn = asking.serve(turn, by)
    assert (turn.status, asking.ran) == ("completed", ran)
    assert [(call.status, call.approval) for call in turn.calls] == [(status, "expired")]


def test_the_lane_is_looked_after_when_the_question_runs_out_and_not_before(asking: Stage) -> None:
    turn = waiting(asking, PAY)
    left_ms = float(asking.redis.zscore("loom:leases", turn.lane) or 0) - float(asking.redis.time()[0]) * 1000
    assert 55_000 < left_ms < 65_000


def test_a_redis_that_forgot_everything_changes_nothing_for_a_turn_that_waits(asking: Stage) -> None:
    turn = waiting(asking, PAY, says("Paid."))
    asking.redis.flushall()
    asking.lanes.submit(turn.lane, [(turn.seq, turn.id)])  # as the sweep does
    assert asking.serve(turn, asking.worker("w2")).status == "requires_action"
    assert asking.book.delivered == []
    decide(asking, turn, "approve")
    by = asking.worker("w3")
    asking.serve(turn, by)
    asking.answer_calls(turn, by)
    assert asking.serve(turn, by).output_text == "Paid."


def test_a_webhook_tells_once_of_a_reply_that_asks_for_a_person(asking: Stage) -> None:
    turn = waiting(asking, wants(("add", {"a": 1, "b": 2}), ("pay", {})), says("Done."), webhook=HOOK)
    by = asking.worker("w2")
    asking.answer_calls(turn, by)
    asking.serve(turn, by)
    (delivery,) = asking.outbox.page(WORKSPACE, limit=9, after=None).items
    assert asking.book.delivered == [delivery.id]
    taken = asking.outbox.take(delivery.id, now_ms=asking.now_ms, hold_ms=1)
    assert taken is not None
    assert '"type":"turn.requires_action"' in taken.body
    assert '"approval":"waiting"' in taken.body


def test_a_worker_that_died_while_a_person_was_asked_costs_no_attempt(asking: Stage) -> None:
    turn = waiting(asking, PAY)
    asking.alive.clear()
    asking.lapse(turn)
    turn = asking.serve(turn, asking.worker("w2"))
    assert (turn.status, turn.deaths) == ("requires_action", 0)


def test_a_call_that_was_decided_is_not_run_by_an_older_message(asking: Stage) -> None:
    turn = waiting(asking, PAY)
    serve_call(turn.id, 0, 1, asking.worker("w2"))
    assert asking.ran == []


def test_a_call_whose_tool_was_withdrawn_meanwhile_is_not_run(asking: Stage) -> None:
    turn = waiting(asking, PAY, says("Then not."))
    asking.agent = replace(asking.agent, tools=("add",))
    decide(asking, turn, "approve")
    by = asking.worker("w2")
    asking.serve(turn, by)
    asking.answer_calls(turn, by)
    turn = asking.serve(turn, by)
    assert (turn.status, asking.ran, turn.calls[0].status) == ("completed", [], "failed")
    assert "no tool 'pay' any more" in str(turn.calls[0].content)


def test_two_calls_with_one_id_can_both_be_decided_on(asking: Stage) -> None:
    reply = wants(("pay", {}), ("pay", {}))
    last = reply[-1]
    assert isinstance(last, Reply)
    reply[-1] = replace(last, tool_uses=tuple(replace(use, id="same") for use in last.tool_uses))
    turn = waiting(asking, reply, says("Both."))
    first, second = (call.id for call in turn.calls)
    decide(asking, turn, "approve", first)
    decide(asking, turn, "reject", second)
    asked = asking.turn(turn)
    assert [call.approval for call in asked.calls] == ["approved", "rejected"]
    by = asking.worker("w2")
    asking.serve(turn, by)
    asking.answer_calls(turn, by)
    asking.serve(turn, by)
    uses = [use.id for message in asking.model.asked[-1].messages for use in message.tool_uses]
    results = [outcome.tool_use_id for message in asking.model.asked[-1].messages for outcome in message.outcomes]
    assert uses == results == [first, second]


def test_a_person_who_was_faster_than_the_policy_is_heard(asking: Stage) -> None:
    turn = waiting(asking, PAY, says("Paid."))
    asking.now_ms += 60_000
    asking.lapse(turn)

    def decides_in_between() -> int:
        if asking.turn(turn).calls[0].approval == "waiting" and asking.held_by(turn):
            decide(asking, turn, "approve")
        return asking.now_ms

    by = asking.worker("w2", clock_ms=decides_in_between)
    asking.serve(turn, by)
    asking.serve(turn, by)
    asking.answer_calls(turn, by)
    turn = asking.serve(turn, by)
    assert (turn.status, asking.ran) == ("completed", ["pay"])
    assert [(call.status, call.approval) for call in turn.calls] == [("completed", "approved")]
