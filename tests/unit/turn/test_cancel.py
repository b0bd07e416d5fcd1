"""A client asks a turn to end: in mid-stream, while it waits, at the last moment, and before it began."""

import pytest

from loom_worker.core.errors import Interrupted
from loom_worker.core.text import fence
from loom_worker.core.values.calls import CANCELLED
from loom_worker.core.values.chat import TextDelta
from loom_worker.core.values.turns import CancelAction
from loom_worker.core.values.webhooks import Webhook
from loom_worker.turn.entrypoints import serve_call
from tests.support.models import Killed, says, wants
from tests.support.stage import WORKSPACE, Stage

SUMS = (("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4}))
HOOK = Webhook("https://example.org/hook", "whsec_" + "x" * 32)


def test_an_interrupt_cuts_the_stream_and_keeps_what_was_said(stage: Stage) -> None:
    turn, worker = stage.submit(), stage.worker("w1")
    cut = lambda: stage.cancel(turn, "interrupt", worker)  # noqa: E731
    stage.model.scenes = [[TextDelta("Half of "), cut, TextDelta("it")]]
    turn = stage.serve(turn, worker)
    assert (turn.status, turn.reason, turn.output_text, turn.cancel) == (
        "cancelled",
        "interrupt",
        "Half of ",
        "interrupt",
    )
    assert [(chat.role, chat.text) for chat in stage.said()] == [("user", "How many?"), ("assistant", "Half of ")]
    assert (turn.usage.llm_calls, turn.usage.output_tokens) == (1, 3)
    assert turn.usage.input_tokens > 0
    assert stage.live(turn) == stage.rebuilt(turn)
    assert stage.live(turn)[-1].data == turn.as_json()
    assert stage.lane_state(turn) is None
    assert stage.model.closed == 1


def test_a_rollback_leaves_the_conversation_as_if_the_turn_never_ran(stage: Stage) -> None:
    stage.model.scenes = [says("First.")]
    worker = stage.worker("w1")
    stage.serve(stage.submit("one"), worker)
    before = stage.said()
    turn = stage.submit("two")
    stage.model.scenes = [
        wants(("note", {}), text="Looking."),
        [TextDelta("Half"), lambda: stage.cancel(turn, "rollback", worker), TextDelta("!")],
        says("Third."),
    ]
    turn = stage.serve(turn, worker)
    assert (turn.status, turn.reason, turn.output_text) == ("cancelled", "rollback", None)
    assert stage.said() == before
    assert turn.usage.llm_calls == 2
    stage.serve(stage.submit("three"), worker)
    assert [chat.text for chat in stage.model.asked[-1].messages] == ["one", "First.", "three"]


def test_the_adapter_is_told_as_soon_as_nobody_wants_the_reply(stage: Stage) -> None:
    turn, worker = stage.submit(), stage.worker("w1")

    def hang() -> None:
        request = stage.model.asked[-1]
        assert not request.is_given_up()
        stage.cancel(turn, "interrupt", worker)
        assert request.is_given_up()
        raise Interrupted("as an adapter does")

    stage.model.scenes = [[hang]]
    turn = stage.serve(turn, worker)
    assert (turn.status, turn.output_text) == ("cancelled", "")
    assert [chat.role for chat in stage.said()] == ["user"]


@pytest.mark.parametrize("action", ["interrupt", "rollback"])
def test_a_cancel_that_nobody_heard_still_comes_before_the_end(stage: Stage, action: CancelAction) -> None:
    turn, worker = stage.submit(webhook=HOOK), stage.worker("w1")
    stage.model.scenes = [[TextDelta("Whole."), lambda: stage.cancel(turn, action), *says("Whole.")[-1:]]]
    turn = stage.serve(turn, worker)
    assert (turn.status, turn.reason) == ("cancelled", action)
    assert len(stage.outbox.page(WORKSPACE, limit=9, after=None).items) == 1
    assert stage.live(turn) == stage.rebuilt(turn)
    assert len(stage.said()) == (2 if action == "interrupt" else 0)


def test_a_cancel_wakes_a_turn_that_waits_for_tools_and_closes_its_calls(stage: Stage) -> None:
    turn, worker = stage.served(wants(*SUMS), says("Next."))
    sent = stage.book.fanned[-1][2]
    serve_call(turn.id, sent[0].position, sent[0].sends, worker)
    stage.cancel(turn, "interrupt")
    assert stage.book.woken == [turn.lane]
    turn = stage.serve(turn, worker)
    assert [call.status for call in turn.calls] == ["completed", "cancelled"]
    serve_call(turn.id, sent[1].position, sent[1].sends, worker)
    assert stage.ran == ["add"]
    stage.serve(stage.submit("And now?"), worker)
    results = stage.model.asked[-1].messages[2]
    assert [(one.content, one.is_error) for one in results.outcomes] == [
        (fence(turn.id, "3"), False),
        (fence(turn.id, CANCELLED), True),
    ]


def test_a_turn_cancelled_while_it_is_about_to_wait_does_not_wait(stage: Stage) -> None:
    turn, worker = stage.submit(), stage.worker("w1")
    reply = wants(*SUMS)
    stage.model.scenes = [[*reply[:-1], lambda: stage.cancel(turn, "interrupt"), reply[-1]]]
    stage.serve(turn, worker)
    assert stage.book.woken == [turn.lane]
    assert stage.serve(turn, worker).status == "cancelled"


def test_finish_closes_what_is_under_way_and_asks_once_more_without_tools(stage: Stage) -> None:
    turn, worker = stage.served(wants(*SUMS), says("So far: nothing."))
    stage.cancel(turn, "finish")
    turn = stage.serve(turn, worker)
    assert (turn.status, turn.output_text) == ("completed", "So far: nothing.")
    assert [call.status for call in turn.calls] == ["cancelled", "cancelled"]
    assert [request.may_call_tools for request in stage.model.asked] == [True, False]
    assert stage.live(turn) == stage.rebuilt(turn)


def test_finish_lets_a_running_answer_come_to_its_end(stage: Stage) -> None:
    turn, worker = stage.submit(), stage.worker("w1")
    stage.model.scenes = [[TextDelta("Who"), lambda: stage.cancel(turn, "finish", worker), *says("le.")]]
    assert stage.serve(turn, worker).status == "completed"


def test_a_turn_that_nobody_has_begun_ends_at_once_and_leaves_nothing(stage: Stage) -> None:
    first, second, worker = stage.submit("one"), stage.submit("two", webhook=HOOK), stage.worker("w1")
    done = stage.cancel(second, "interrupt")
    assert (done.turn.status, done.turn.reason, done.is_new) == ("cancelled", "interrupt", True)
    assert done.delivery is not None
    assert [one.id for one in stage.outbox.page(WORKSPACE, limit=9, after=None).items] == [done.delivery.id]
    stage.model.scenes = [says("First.")]
    stage.serve(first, worker)
    stage.serve(first, worker)
    assert [chat.text for chat in stage.said()] == ["one", "First."]
    assert stage.lane_state(first) is None


def test_finish_of_a_turn_that_nobody_has_begun_is_heeded_when_its_time_comes(stage: Stage) -> None:
    turn = stage.submit()
    assert stage.cancel(turn, "finish").turn.status == "queued"
    stage.model.scenes = [says("Short.")]
    assert stage.serve(turn, stage.worker("w1")).status == "completed"
    assert [request.may_call_tools for request in stage.model.asked] == [False]


def test_of_two_wishes_the_stronger_one_holds_and_repeats_change_nothing(stage: Stage) -> None:
    stage.model.scenes = [wants(*SUMS)]
    turn = stage.submit()
    stage.serve(turn, stage.worker("w1"))
    asked: list[CancelAction] = ["finish", "interrupt", "finish", "interrupt", "rollback", "interrupt"]
    assert [stage.cancel(turn, action).is_new for action in asked] == [True, True, False, False, True, False]
    assert stage.turn(turn).cancel == "rollback"


def test_a_cancel_of_an_ended_turn_changes_nothing(stage: Stage) -> None:
    turn = stage.answered(says("Done."))
    assert stage.cancel(turn, "rollback").is_new is False
    assert stage.turn(turn) == turn


def test_a_wish_outlives_the_worker_that_heard_it(stage: Stage) -> None:
    turn, worker = stage.submit(), stage.worker("w1")
    stage.model.scenes = [[TextDelta("Half"), lambda: stage.cancel(turn, "interrupt", worker), Killed()]]
    with pytest.raises(Killed):
        stage.serve(turn, worker)
    stage.lapse(turn)
    turn = stage.serve(turn, stage.worker("w2"))
    assert (turn.status, len(stage.model.asked)) == ("cancelled", 1)


def test_a_last_attempt_in_its_own_process_looks_into_the_database_by_itself(stage: Stage) -> None:
    turn, worker = stage.submit(), stage.worker("w1", is_isolated=True)
    given_up = []

    def wait() -> None:
        stage.cancel(turn, "interrupt")
        request = stage.model.asked[-1]
        while not request.is_given_up():
            given_up.append(False)

    stage.model.scenes = [[TextDelta("Half a"), wait, TextDelta("never")]]
    turn = stage.serve(turn, worker)
    assert (turn.status, turn.output_text) == ("cancelled", "Half a")
    assert given_up


@pytest.mark.parametrize("action", ["interrupt", "rollback"])
def test_a_message_that_overrules_ends_the_running_turn_and_no_queued_one(stage: Stage, action: CancelAction) -> None:
    stage.model.scenes = [wants(*SUMS), says("Queued."), says("Newest.")]
    running, worker = stage.submit("one"), stage.worker("w1")
    stage.serve(running, worker)
    queued = stage.submit("two")
    newest = stage.submit("three", double_texting=action)
    stage.lanes.alert(running.lane)
    for _ in range(3):
        stage.serve(running, worker)
    assert [stage.turn(turn).status for turn in (running, queued, newest)] == ["cancelled", "completed", "completed"]
    assert stage.turn(running).reason == action
    assert [chat.text for chat in stage.said() if chat.role == "user"][-2:] == ["two", "three"]


def test_a_message_that_overrules_an_idle_session_is_an_ordinary_one(stage: Stage) -> None:
    stage.model.scenes = [says("Fine.")]
    assert stage.serve(stage.submit(double_texting="rollback"), stage.worker("w1")).status == "completed"
