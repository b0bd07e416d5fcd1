"""Turns that wait for other agents: asked, delegated to, cancelled with their parent, and paid from its budgets."""

import re
from dataclasses import replace

import pytest

from loom_worker.core.values.children import MOST_DEPTH
from loom_worker.core.values.guardrails import Guardrails
from loom_worker.core.values.tools import Caller
from loom_worker.core.values.turns import Turn
from loom_worker.store.agent_messages import AgentMessages
from loom_worker.tools.agent_tools import NO_WORKERS, MessageParts, Peers, agent_tools
from loom_worker.tools.registry import Registry
from loom_worker.turn.entrypoints import serve_lane
from tests.support.models import Killed, says, wants
from tests.support.notes import Notes
from tests.support.stage import WORKSPACE, Stage

HELPERS = {"helper": "Helps.", "second": "", "third": "", "fourth": ""}
ASK = ("ask_agent", {"agent": "helper", "message": "How many?"})


@pytest.fixture(autouse=True)
def talking(stage: Stage) -> None:
    """All agents of the stage may call all others."""
    parts = MessageParts(AgentMessages(stage.database), stage.references, NO_WORKERS, 10_240)
    stage.registry = Registry((*stage.tools(), *agent_tools(Peers(HELPERS, is_called=True), parts)))


def children(stage: Stage, turn: Turn) -> list[Turn]:
    """The children of a turn's calls, in the order of the calls."""
    found = stage.turn(turn).calls
    return [stage.turns.get(WORKSPACE, call.child_turn_id) for call in found if call.child_turn_id is not None]


def asked(stage: Stage, *calls: tuple[str, dict[str, object]], **new: object) -> Turn:
    """A turn that has asked for these calls, and waits."""
    stage.model.scenes = [wants(*calls)]
    turn = stage.submit(**new)  # type: ignore[arg-type]
    return stage.serve(turn, stage.worker("w1"))


def test_an_agent_asks_another_one_and_goes_on_with_its_answer(stage: Stage) -> None:
    turn = asked(stage, ASK)
    (child,) = children(stage, turn)
    assert (child.agent, child.input, child.status) == ("helper", "How many?", "queued")
    assert child.as_json()["parent_turn_id"] == turn.id
    assert stage.book.woken[-1] == child.lane
    stage.model.scenes = [says("42"), says("It is 42.")]
    assert stage.serve(child, stage.worker("w2")).output_text == "42"
    assert stage.book.woken[-1] == turn.lane
    done = stage.serve(turn, stage.worker("w2"))
    assert (done.status, done.output_text) == ("completed", "It is 42.")
    assert (done.calls[0].status, done.calls[0].content) == ("completed", "42")
    assert done.calls[0].as_json()["child_turn_id"] == child.id
    assert stage.live(turn) == stage.rebuilt(turn)


def test_a_turn_that_waits_for_another_agent_holds_no_worker(stage: Stage) -> None:
    turn = asked(stage, ASK)
    assert (turn.held_by, stage.lane_state(turn)) == (None, "parked")


def test_a_question_is_remembered_and_a_task_begins_anew(stage: Stage) -> None:
    turn = asked(stage, ASK, ("delegate", {"agent": "helper", "task": "Count."}), ASK)
    first, task, again = children(stage, turn)
    assert first.session_id == again.session_id
    assert task.session_id not in (first.session_id, turn.session_id)
    assert ":" in first.session_id
    listed = stage.sessions.page(WORKSPACE, limit=9, after=None).items
    assert [session.id for session in listed] == [turn.session_id]


def test_tasks_of_one_reply_are_done_side_by_side_and_each_answer_finds_its_call(stage: Stage) -> None:
    turn = asked(stage, *(("delegate", {"agent": name, "task": f"Ask {name}."}) for name in ("helper", "second")))
    first, second = children(stage, turn)
    for child, answer in ((second, "two"), (first, "one")):
        stage.model.scenes = [says(answer)]
        stage.serve(child, stage.worker("w2"))
    stage.model.scenes = [says("done")]
    assert [call.content for call in stage.serve(turn, stage.worker("w3")).calls] == ["one", "two"]


def test_no_child_is_asked_twice_when_its_parent_is_taken_up_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:

        def dies(point: str) -> None:
            if point == "children.accepted":
                raise Killed

        patch.setattr("loom_worker.turn.children.crash_points.reached", dies)
        stage.model.scenes = [wants(ASK)]
        turn = stage.submit()
        with pytest.raises(Killed):
            serve_lane(turn.lane, stage.worker("w1"))
    stage.alive.clear()
    stage.lapse(turn)
    stage.lanes.expired(limit=9)
    stage.serve(turn, stage.worker("w2"))
    assert len(children(stage, turn)) == 1
    listed = stage.turns.page(WORKSPACE, {}, limit=9, after=None).items
    assert len(listed) == 2


def test_a_turn_whose_answer_came_unnoticed_is_found_by_the_sweep(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = asked(stage, ASK)
    (child,) = children(stage, turn)
    assert stage.claims.awaited_lanes(now_ms=stage.now_ms, limit=9) == ()
    stage.model.scenes = [says("42")]
    monkeypatch.setattr("loom_worker.turn.children.tell_parent", lambda _turn, _worker: None)
    stage.serve(child, stage.worker("w2"))
    assert stage.claims.awaited_lanes(now_ms=stage.now_ms, limit=9) == (turn.lane,)


def test_an_answer_that_does_not_come_in_time_is_given_up_and_its_work_cancelled(stage: Stage) -> None:
    turn = asked(stage, ("ask_agent", {"agent": "helper", "message": "How many?", "reply_timeout_s": 5}))
    (child,) = children(stage, turn)
    stage.now_ms += 5_000
    assert stage.claims.awaited_lanes(now_ms=stage.now_ms, limit=9) == (turn.lane,)
    stage.lanes.alert(turn.lane)
    stage.model.scenes = [says("I do not know.")]
    done = stage.serve(turn, stage.worker("w1"))
    assert (done.calls[0].status, done.status) == ("timeout", "completed")
    assert "within 5 s" in (done.calls[0].content or "")
    assert stage.turn(child).status == "cancelled"


def test_a_task_is_waited_for_however_long_it_takes(stage: Stage) -> None:
    turn = asked(stage, ("delegate", {"agent": "helper", "task": "Count."}))
    stage.now_ms += 86_400_000
    stage.lanes.alert(turn.lane)
    turn = stage.serve(turn, stage.worker("w1"))
    assert turn.calls[0].status == "running"


@pytest.mark.parametrize("has_begun", [True, False])
def test_cancelling_a_turn_cancels_what_it_waits_for(stage: Stage, *, has_begun: bool) -> None:
    turn = asked(stage, ASK)
    (child,) = children(stage, turn)
    if has_begun:
        stage.model.scenes = [wants(("add", {"a": 1, "b": 2}))]
        stage.serve(child, stage.worker("w2"))
    stage.cancel(turn, "interrupt")
    assert stage.serve(turn, stage.worker("w1")).status == "cancelled"
    if has_begun:
        assert stage.turn(child).cancel == "interrupt"
        stage.serve(child, stage.worker("w2"))
    ended = stage.turn(child)
    assert (ended.status, ended.reason) == ("cancelled", "interrupt")
    assert stage.told(ended)[-1] == "turn.cancelled"


def test_finishing_a_turn_stops_what_it_waits_for(stage: Stage) -> None:
    turn = asked(stage, ASK)
    stage.cancel(turn, "finish")
    stage.model.scenes = [says("So far nothing.")]
    assert stage.serve(turn, stage.worker("w1")).output_text == "So far nothing."
    assert children(stage, turn)[0].status == "cancelled"


def test_a_child_that_fails_is_told_with_its_reason(stage: Stage) -> None:
    turn = asked(stage, ASK)
    (child,) = children(stage, turn)
    stage.cancel(child, "interrupt")
    stage.lanes.alert(turn.lane)
    stage.model.scenes = [says("It did not answer.")]
    done = stage.serve(turn, stage.worker("w1"))
    assert (done.calls[0].status, done.status) == ("failed", "completed")
    assert done.calls[0].content == "helper gave no answer (interrupt): It was cancelled."


def test_a_child_whose_session_is_deleted_is_told_as_cancelled(stage: Stage) -> None:
    turn = asked(stage, ASK)
    stage.sessions.delete(WORKSPACE, children(stage, turn)[0].session_id)
    assert stage.claims.awaited_lanes(now_ms=stage.now_ms, limit=9) == (turn.lane,)
    stage.lanes.alert(turn.lane)
    stage.model.scenes = [says("Gone.")]
    assert "was deleted" in (stage.serve(turn, stage.worker("w1")).calls[0].content or "")


def test_a_deleted_session_takes_those_of_its_children_with_it(stage: Stage) -> None:
    turn = asked(stage, ASK)
    (child,) = children(stage, turn)
    stage.model.scenes = [wants(("delegate", {"agent": "second", "task": "Count."}))]
    (grandchild,) = children(stage, stage.serve(child, stage.worker("w2")))
    deleted = stage.sessions.delete(WORKSPACE, turn.session_id)
    assert {each.lane for each in deleted} == {turn.lane, child.lane, grandchild.lane}
    assert all(
        each.turns == {turn_id: True} for each, turn_id in zip(deleted, (turn.id, child.id, grandchild.id), strict=True)
    )


def test_an_agent_that_waits_for_an_answer_is_not_asked_for_it(stage: Stage) -> None:
    (child,) = children(stage, asked(stage, ASK))
    stage.model.scenes = [wants(ASK, ("delegate", {"agent": "helper", "task": "x"})), says("I know it myself.")]
    done = stage.serve(child, stage.worker("w2"))
    assert [call.status for call in done.calls] == ["failed", "failed"]
    assert "waits for this answer already (default -> helper -> helper)" in (done.calls[0].content or "")


def test_agents_that_wait_for_each_other_are_a_few_at_most(stage: Stage) -> None:
    turn = asked(stage, ASK)
    for depth, name in enumerate(("second", "third", "fourth"), start=1):
        (turn,) = children(stage, turn)
        assert len(turn.ancestors) == depth
        stage.model.scenes = [wants(("delegate", {"agent": name, "task": "x"})), says("Alone, then.")]
        turn = stage.serve(turn, stage.worker("w2"))
    assert len(turn.ancestors) == MOST_DEPTH
    assert (turn.status, turn.calls[0].status) == ("completed", "failed")
    assert "the most that may" in (turn.calls[0].content or "")


def test_a_turn_asks_others_only_so_often(stage: Stage) -> None:
    turn = asked(stage, *[("delegate", {"agent": "helper", "task": str(n)}) for n in range(20)])
    assert len(children(stage, turn)) == 20
    for child in children(stage, turn):
        stage.cancel(child, "interrupt")
    stage.lanes.alert(turn.lane)
    stage.model.scenes = [wants(ASK, first_id=90), says("Enough.")]
    done = stage.serve(turn, stage.worker("w1"))
    assert done.calls[-1].content == "Not run: a turn may ask other agents 20 times."


def test_an_agent_that_may_not_be_called_is_refused(stage: Stage) -> None:
    done = stage.answered(wants(("ask_agent", {"agent": "boss", "message": "x"})), says("Not allowed."))
    assert done.calls[0].status == "failed"
    assert "helper" in (done.calls[0].content or "")


def test_a_child_is_paid_from_the_budgets_of_the_turn_that_waits_for_it(stage: Stage) -> None:
    turn = asked(stage, ASK, budget={"tool_calls": 2})
    (child,) = children(stage, turn)
    adds = [("add", {"a": n, "b": 0}) for n in range(2)]
    stage.model.scenes = [wants(*adds)]
    done = stage.serve(child, stage.worker("w2"))
    assert (done.status, done.reason) == ("incomplete", "budget")
    assert {call.status for call in done.calls} == {"denied"}
    assert "this turn" in (done.calls[0].content or "")


def test_what_a_child_spends_is_missing_to_the_turn_that_waits_for_it(stage: Stage) -> None:
    turn = asked(stage, ASK, budget={"tool_calls": 2})
    (child,) = children(stage, turn)
    stage.model.scenes = [wants(("note", {})), says("42")]
    assert stage.serve(child, stage.worker("w2")).status == "completed"
    stage.model.scenes = [wants(("note", {}), first_id=7), says("late")]
    assert stage.serve(turn, stage.worker("w1")).reason == "budget"


def test_a_long_answer_is_passed_on_as_a_reference_that_only_its_receiver_can_read(stage: Stage) -> None:
    turn, stranger = asked(stage, ASK), stage.submit(session="stranger")
    (child,) = children(stage, turn)
    whole = "A long line of words.\n" * 1000
    stage.model.scenes = [says(whole), says("Read.")]
    stage.serve(child, stage.worker("w2"))
    call = stage.serve(turn, stage.worker("w1")).calls[0]
    assert call.ref is not None
    assert call.ref in (call.content or "")
    assert len(call.content or "") < 1000
    rows = stage.references.stores.rows
    assert rows.of_lane(call.ref, turn.lane) is not None
    assert rows.of_lane(call.ref, stranger.lane) is None
    assert stage.turn(child).output_text == whole


def test_a_long_answer_is_kept_as_long_as_the_turn_goes_on_that_asked_for_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = asked(stage, ASK)
    (child,) = children(stage, turn)
    stage.model.scenes = [says("A long line of words.\n" * 1000)]
    monkeypatch.setattr("loom_worker.turn.children.tell_parent", lambda _turn, _worker: None)
    stage.serve(child, stage.worker("w2"))
    rows, late_ms = stage.references.stores.rows, stage.now_ms * 2
    assert rows.take_expired(unused_since_ms=late_ms, limit=9) == ()
    stage.cancel(turn, "interrupt")
    stage.serve(turn, stage.worker("w1"))
    assert len(rows.take_expired(unused_since_ms=late_ms, limit=9)) == 1


def test_a_reference_that_a_task_names_is_passed_on_to_its_receiver_and_nobody_else(stage: Stage) -> None:
    owner = stage.submit("first")
    caller = Caller(owner.lane, owner.session_id, WORKSPACE, owner.id, "c1")
    kept = stage.references.keep("rows\n" * 9, "text/plain", caller, tool="t", count=len)
    assert kept is not None
    ref = kept.reference.id
    stage.model.scenes = [
        wants(
            *(
                ("delegate", {"agent": name, "task": text})
                for name, text in (("helper", f"See {ref}."), ("second", "x"))
            )
        )
    ]
    helper, second = children(stage, stage.serve(owner, stage.worker("w1")))
    rows = stage.references.stores.rows
    assert rows.of_lane(ref, helper.lane) is not None
    assert rows.of_lane(ref, second.lane) is None
    # What a session cannot read it cannot pass on either.
    stage.model.scenes = [wants(("delegate", {"agent": "third", "task": f"See {ref}."}))]
    (third,) = children(stage, stage.serve(second, stage.worker("w2")))
    assert rows.of_lane(ref, third.lane) is None


def test_a_guardrail_of_the_other_agent_holds_for_what_it_is_asked(stage: Stage) -> None:
    stage.agent = replace(stage.agent, guardrails=Guardrails.of({"input": {"pii": "block"}}))
    done = stage.answered(
        wants(("ask_agent", {"agent": "helper", "message": "Mail ann@example.com"})), says("Refused.")
    )
    assert done.calls[0].status == "failed"
    assert re.search("a guardrail of helper refuses the text", done.calls[0].content or "")


def test_a_monitor_is_told_when_a_call_begins_to_wait_and_how_it_ends(stage: Stage) -> None:
    notes = Notes()
    worker = stage.worker("w1", monitor=notes)
    stage.model.scenes = [wants(ASK, ("receive_messages", {}))]
    turn = stage.submit()
    stage.serve(turn, worker)
    assert notes.of("turn")[-1] == ("waits", 1, "other agents (1)")
    (child,) = children(stage, turn)
    stage.model.scenes = [says("42"), says("It is 42.")]
    stage.serve(child, stage.worker("w2"))
    stage.serve(turn, worker)
    told = [(note.how, note.work.names["tool"], note.words) for note in notes.all if note.work.kind == "tool"]
    assert told == [
        ("succeeded", "receive_messages", "completed"),
        ("started", "ask_agent", ""),
        ("succeeded", "ask_agent", "completed"),
    ]


def test_a_guardrail_of_the_agent_that_asks_holds_for_the_answer(stage: Stage) -> None:
    turn = asked(stage, ASK)
    (child,) = children(stage, turn)
    stage.model.scenes = [says("Mail ann@example.com")]
    stage.serve(child, stage.worker("w2"))
    stage.agent = replace(stage.agent, guardrails=Guardrails.of({"tool_result": {"pii": "redact"}}))
    stage.model.scenes = [says("Done.")]
    call = stage.serve(turn, stage.worker("w1")).calls[0]
    assert call.status == "completed"
    assert "ann@example.com" not in (call.content or "")


def test_an_answer_that_is_late_is_told_as_such_whoever_notices_it_first(stage: Stage) -> None:
    turn = asked(stage, ("ask_agent", {"agent": "helper", "message": "How many?", "reply_timeout_s": 5}))
    (child,) = children(stage, turn)
    stage.now_ms += 5_000
    assert stage.serve(child, stage.worker("w2")).reason == "deadline"
    stage.model.scenes = [says("I do not know.")]
    assert stage.serve(turn, stage.worker("w1")).calls[0].status == "timeout"
