"""The doors: a wake-up, a tool call, a waking; with real lanes, store and logs."""

from itertools import permutations

import pytest
import redis

from loom_worker.core.stopping import Stopping
from loom_worker.core.text import fence
from loom_worker.core.values.agents import Content
from loom_worker.core.values.calls import CANCELLED, Call
from loom_worker.core.values.json import Json
from loom_worker.core.values.sessions import Choice, SessionPatch
from loom_worker.core.values.turns import Turn
from loom_worker.core.values.webhooks import Webhook
from loom_worker.lanes import keys
from loom_worker.lanes.lanes import Lanes
from loom_worker.store.calls import Calls, Left
from loom_worker.turn import entrypoints
from loom_worker.turn.agent_runtime import AgentRuntime
from loom_worker.turn.tool_plan import MAX_SENDS
from loom_worker.webhook.body import WebhookBodies
from tests.support.models import says, wants
from tests.support.stage import WORKSPACE, Stage, StageAgents

SUMS = (("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4}), ("add", {"a": 5, "b": 6}))


def agrees(stage: Stage, turn_id: str) -> None:
    turn = stage.turns.get(WORKSPACE, turn_id)
    assert stage.live(turn) == stage.rebuilt(turn)


def test_a_question_is_answered_in_one_step(stage: Stage) -> None:
    turn = stage.answered(says("There are 42."))
    assert (turn.status, turn.output_text, turn.usage.llm_calls) == ("completed", "There are 42.", 1)
    assert [chat.role for chat in stage.said()] == ["user", "assistant"]
    assert stage.told(turn) == [
        "turn.queued",
        "turn.started",
        "pattern.matched",
        "context.built",
        "output_text.delta",
        "turn.completed",
    ]
    agrees(stage, turn.id)
    assert stage.lane_state(turn) is None
    assert stage.book.woken == []


def test_the_final_event_shows_the_turn_as_every_reader_finds_it(stage: Stage) -> None:
    turn, worker = stage.served(wants(*SUMS[:1]), says("3"))
    stage.answer_calls(turn, worker)
    turn = stage.serve(turn, worker)
    assert stage.live(turn)[-1].data == turn.as_json()


def test_the_next_turn_of_a_lane_is_woken_and_sees_what_was_said_before(stage: Stage) -> None:
    stage.model.scenes = [says("First."), says("Second.")]
    one, two, worker = stage.submit("one"), stage.submit("two"), stage.worker("w1")
    stage.serve(two, worker)
    assert stage.book.woken == [one.lane]
    assert (stage.turn(one).status, stage.turn(two).status) == ("completed", "queued")
    stage.serve(two, worker)
    assert [(chat.role, chat.text) for chat in stage.model.asked[1].messages] == [
        ("user", "one"),
        ("assistant", "First."),
        ("user", "two"),
    ]


def test_a_second_wake_up_does_nothing_while_the_first_is_answered(stage: Stage) -> None:
    turn, other = stage.submit(), stage.worker("w2")
    stage.model.scenes = [[lambda: entrypoints.serve_lane(turn.lane, other), *says("Once.")]]
    assert stage.serve(turn, stage.worker("w1")).output_text == "Once."
    assert len(stage.model.asked) == 1


def test_a_wake_up_of_an_unknown_lane_leaves_nothing_behind(stage: Stage) -> None:
    entrypoints.serve_lane("nobody", stage.worker("w1"))
    assert stage.redis.keys("loom:l*") == []


def test_a_fan_out_frees_the_slot_and_asks_for_one_chord(stage: Stage) -> None:
    turn = stage.answered(wants(*SUMS))
    assert (turn.status, stage.held_by(turn), stage.lane_state(turn)) == ("in_progress", None, "parked")
    [(lane, turn_id, calls, _)] = stage.book.fanned
    assert (lane, turn_id, [(call.position, call.sends) for call in calls]) == (
        turn.lane,
        turn.id,
        [(0, 1), (1, 1), (2, 1)],
    )
    assert [call.status for call in turn.calls] == ["pending"] * 3


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_a_turn_goes_on_when_its_calls_are_done_in_any_order(stage: Stage, order: tuple[int, ...]) -> None:
    turn, worker = stage.served(wants(*SUMS, text="Adding."), says("Done."))
    stage.now_ms += 1
    for place in order[:2]:
        stage.now_ms += 1
        stage.answer_calls(turn, stage.worker("w2"), [place])
    assert stage.book.woken == []
    stage.now_ms += 1
    stage.answer_calls(turn, stage.worker("w3"), order[2:])
    assert stage.book.woken == [turn.lane]
    turn = stage.serve(turn, worker)
    assert turn.output_text == "Done."
    [outcomes] = [chat.outcomes for chat in stage.said() if chat.role == "tool"]
    assert [(outcome.tool_use_id, outcome.content) for outcome in outcomes] == [
        ("toolu_1", "3"),
        ("toolu_2", "7"),
        ("toolu_3", "11"),
    ]
    agrees(stage, turn.id)


def test_a_late_chord_body_does_not_wake_a_turn_that_went_on(stage: Stage) -> None:
    turn, worker = stage.served(wants(*SUMS[:1]), says("3"))
    stage.answer_calls(turn, worker)
    ticket = stage.book.fanned[0][3]
    entrypoints.serve_wake(turn.lane, ticket, worker)
    assert stage.book.woken == [turn.lane]


def test_a_call_sent_twice_runs_once(stage: Stage) -> None:
    turn, worker = stage.served(wants(("pay", {})), says("Paid."))
    stage.answer_calls(turn, worker, [0, 0])
    assert stage.ran == ["pay"]


def test_a_single_bounded_call_runs_in_place(stage: Stage) -> None:
    turn = stage.answered(wants(("note", {}), text="Noting."), says("Noted."))
    assert (turn.output_text, stage.ran, stage.book.fanned) == ("Noted.", ["note"], [])
    agrees(stage, turn.id)


def test_two_bounded_calls_are_sent_away(stage: Stage) -> None:
    stage.answered(wants(("note", {}), ("note", {})))
    assert (len(stage.book.fanned), stage.ran) == (1, [])


def test_a_tool_that_fails_is_data_for_the_model(stage: Stage) -> None:
    turn, worker = stage.served(wants(("fail", {})), says("It is locked."))
    stage.answer_calls(turn, worker)
    assert stage.serve(turn, worker).status == "completed"
    [outcome] = stage.model.asked[1].messages[-1].outcomes
    assert (outcome.is_error, outcome.content) == (True, fence(turn.id, "The table is locked. [DATABASE_ERROR]"))


def test_calls_that_cannot_run_are_answered_at_once_and_the_model_is_asked_again(stage: Stage) -> None:
    turn = stage.answered(wants(("ad", {}), ("add", {"a": "x", "b": 1})), says("Sorry."))
    assert (turn.status, stage.book.fanned, stage.ran) == ("completed", [], [])
    outcomes = stage.model.asked[1].messages[-1].outcomes
    assert all(outcome.is_error for outcome in outcomes)
    assert "did you mean add" in outcomes[0].content
    agrees(stage, turn.id)


def test_a_call_of_a_tool_that_is_gone_is_closed_instead_of_sent_for_ever(stage: Stage) -> None:
    turn, worker = stage.served(wants(("add", {"a": 1, "b": 1})), says("No tool."))
    stage.registry = type(stage.registry)(tool for tool in stage.tools() if tool.spec.name != "add")
    turn = stage.answer_calls(turn, worker)
    assert (turn.calls[0].status, stage.book.woken) == ("failed", [turn.lane])
    assert "add" in str(turn.calls[0].content)


def test_a_paused_session_keeps_its_turn_and_leaves_no_lease(stage: Stage) -> None:
    turn = stage.submit()
    stage.sessions.patch(WORKSPACE, "s1", SessionPatch(status="paused"), now_ms=1)
    turn = stage.serve(turn, stage.worker("w1"))
    assert (turn.status, turn.fence, stage.lane_state(turn), stage.model.asked) == ("queued", 0, None, [])


def test_nothing_of_a_session_stays_that_was_deleted_while_its_turn_ran(stage: Stage) -> None:
    turn = stage.submit(webhook=Webhook("https://example.org/hook"))

    def delete() -> None:
        stage.events.forget(stage.sessions.delete(WORKSPACE, "s1")[0].turns)

    first, *rest = says("To nobody, and of some length.", pieces=9)
    stage.model.scenes = [[first, delete, *rest]]
    entrypoints.serve_lane(turn.lane, stage.worker("w1"))
    assert stage.redis.keys("loom:e*") == []
    assert stage.book.delivered == []
    assert stage.outbox.page(WORKSPACE, limit=9, after=None).items == ()
    assert stage.claims.open_lane(turn.lane).turns == ()
    stage.submit()
    assert stage.said() == []


def test_a_call_of_a_deleted_session_is_dropped(stage: Stage) -> None:
    turn, worker = stage.served(wants(*SUMS[:1]))
    stage.sessions.delete(WORKSPACE, "s1")
    entrypoints.serve_call(turn.id, 0, 1, worker)
    assert stage.ran == []


def test_calls_of_a_dead_tool_worker_are_sent_again_if_that_is_safe_and_closed_if_not(stage: Stage) -> None:
    turn, worker = stage.served(wants(("add", {"a": 1, "b": 1}), ("pay", {})), says("Perhaps paid."))
    for position in (0, 1):
        stage.calls.claim(turn.id, position, 1, worker="ghost", now_ms=stage.now_ms, durable=False)
    stage.lapse(turn)
    turn = stage.serve(turn, worker)
    assert [call.status for call in turn.calls] == ["pending", "unknown"]
    assert [call.sends for call in stage.book.fanned[-1][2]] == [2]
    stage.answer_calls(turn, worker)
    turn = stage.serve(turn, worker)
    assert (turn.output_text, stage.ran) == ("Perhaps paid.", ["add"])
    agrees(stage, turn.id)


def test_a_call_that_kills_its_workers_is_closed_in_the_end(stage: Stage) -> None:
    turn, worker = stage.served(wants(*SUMS[:1]), says("It kills."))
    for send in range(1, MAX_SENDS + 1):
        stage.calls.claim(turn.id, 0, send, worker=f"ghost{send}", now_ms=stage.now_ms, durable=False)
        stage.lapse(turn)
        turn = stage.serve(turn, worker)
    assert (turn.calls[0].status, turn.output_text) == ("unknown", "It kills.")
    agrees(stage, turn.id)


def test_each_result_is_told_as_soon_as_it_is_there(stage: Stage) -> None:
    turn, worker = stage.served(wants(*SUMS[:2]))
    for told in (1, 2):
        stage.answer_calls(turn, worker, [told - 1])
        assert stage.told(turn).count("tool_call.completed") == told


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_no_result_is_told_in_the_place_of_events_that_an_owner_journaled_and_died_before_it_told(
    stage: Stage, lost: int
) -> None:
    turn, worker = stage.served(wants(*SUMS[:2]), says("3 and 7."))
    read = stage.live(turn)[:-lost]
    stage.events.restore(turn.id, read)
    stage.answer_calls(turn, worker)
    assert stage.live(turn) == read
    turn = stage.serve(turn, worker)
    assert stage.live(turn)[: len(read)] == read
    assert stage.told(turn).count("tool_call.completed") == 2
    agrees(stage, turn.id)


def test_a_result_that_the_next_owner_has_told_is_not_told_again_by_a_slow_worker(stage: Stage) -> None:
    class SlowCalls(Calls):
        def close(self, turn_id: str, call: Call, *, concurrency: int = 0) -> Left | None:
            left = super().close(turn_id, call, concurrency=concurrency)
            stage.answer_calls(turn, worker, [1])
            stage.serve(turn, worker)
            return left

    turn, worker = stage.served(wants(*SUMS[:2]), says("3 and 7."))
    slow = stage.worker("slow", calls=SlowCalls(stage.database))
    stage.answer_calls(turn, slow, [0])
    assert stage.turn(turn).status == "completed"
    agrees(stage, turn.id)


def test_a_turn_that_ends_with_calls_under_way_rebuilds_as_it_was_told(stage: Stage) -> None:
    turn, worker = stage.served(wants(*SUMS[:2]), deadline_s=10)
    stage.calls.claim(turn.id, 0, 1, worker="w1", now_ms=stage.now_ms, durable=False)
    stage.now_ms += 11_000
    stage.lapse(turn)
    turn = stage.serve(turn, worker)
    assert (turn.status, turn.reason) == ("incomplete", "deadline")
    assert [call.status for call in turn.calls] == ["cancelled", "cancelled"]
    agrees(stage, turn.id)


def test_a_webhook_tells_the_calls_as_they_are_though_one_began_while_it_was_written(stage: Stage) -> None:
    told: list[Json] = []

    class Bodies(WebhookBodies):
        def of(self, turn: Turn) -> str:
            stage.calls.claim(turn.id, 0, 1, worker="late", now_ms=stage.now_ms, durable=False)
            told.append(turn.as_json())
            return "{}"

    stage.model.scenes = [wants(*SUMS[:1])]
    turn = stage.submit(deadline_s=10, webhook=Webhook("https://example.org/hook"))
    worker = stage.worker("w1", bodies=Bodies("http://loom"))
    stage.serve(turn, worker)
    stage.now_ms += 11_000
    stage.lapse(turn)
    turn = stage.serve(turn, worker)
    assert [call["status"] for call in told[-1]["tool_calls"]] == ["cancelled"]
    assert told[-1] == turn.as_json()


def test_a_result_that_comes_while_its_turn_is_being_ended_is_told_to_all_alike(stage: Stage) -> None:
    told: list[Json] = []

    class Bodies(WebhookBodies):
        def of(self, turn: Turn) -> str:
            if not told:
                entrypoints.serve_call(turn.id, 0, 1, stage.worker("late"))
            told.append(turn.as_json())
            return "{}"

    stage.model.scenes = [wants(*SUMS[:2])]
    turn = stage.submit(deadline_s=10, webhook=Webhook("https://example.org/hook"))
    worker = stage.worker("w1", bodies=Bodies("http://loom"))
    stage.serve(turn, worker)
    stage.now_ms += 11_000
    stage.lapse(turn)
    assert stage.serve(turn, worker).status == "in_progress"
    assert stage.book.woken[-1] == turn.lane
    turn = stage.serve(turn, worker)
    assert ([call.status for call in turn.calls], turn.attempt) == (["completed", "cancelled"], 1)
    assert told[-1] == turn.as_json()
    [result] = [message for message in stage.said() if message.outcomes]
    assert [outcome.content for outcome in result.outcomes] == ["3", CANCELLED]
    agrees(stage, turn.id)


def test_a_lane_that_became_idle_stays_idle_through_a_beat_of_its_keeper(stage: Stage) -> None:
    stage.model.scenes = [says("Done.")]
    worker = stage.worker("w1")
    stage.book.on_deliver = worker.renewer.renew
    turn = stage.serve(stage.submit(webhook=Webhook("https://example.org/hook")), worker)
    assert (turn.status, stage.lane_state(turn)) == ("completed", None)


def test_a_turn_answers_while_its_live_log_is_down(stage: Stage, tmp_path: object) -> None:
    nowhere = redis.Redis.from_url(f"unix://{tmp_path}/none", decode_responses=True)
    turn = stage.answered(says("Anyway."), by=stage.worker("w1", events=type(stage.events)(nowhere, nowhere)))
    assert turn.output_text == "Anyway."
    assert [event.id for event in stage.rebuilt(turn)] == list(range(1, 7))


class DeafLanes(Lanes):
    """Lanes whose Redis dies as a turn has just been parked in the database."""

    def park(self, lease: object, *, wait_ms: int) -> bool:
        raise redis.ConnectionError("gone")


def test_a_redis_that_dies_at_the_parking_costs_no_attempt(stage: Stage) -> None:
    turn = stage.answered(
        wants(*SUMS[:1]), says("3"), by=stage.worker("w1", lanes=DeafLanes(stage.redis, stage.settings.lanes))
    )
    assert (stage.held_by(turn), stage.turn(turn).deaths) == (None, 0)


def test_a_lane_s_turns_follow_each_other_in_one_slot_while_no_other_lane_waits(stage: Stage) -> None:
    stage.redis.delete(keys.WAKEUPS)
    stage.model.scenes = [says("First."), says("Second."), says("Third.")]
    turns = [stage.submit(text) for text in ("one", "two", "three")]
    stage.serve(turns[0], stage.worker("w1"))
    assert [stage.turn(turn).output_text for turn in turns] == ["First.", "Second.", "Third."]
    assert (stage.book.woken, stage.lane_state(turns[0])) == ([], None)


def test_a_worker_that_stops_leaves_a_lane_s_next_turn_to_another(stage: Stage) -> None:
    stage.redis.delete(keys.WAKEUPS)
    stopping = Stopping(drain_s=10)
    stage.model.scenes = [[stopping.ask, *says("First.")]]
    first, second = stage.submit("one"), stage.submit("two")
    stage.serve(first, stage.worker("w1", stopping=stopping))
    assert (stage.turn(first).status, stage.turn(second).status) == ("completed", "queued")
    assert (stage.book.woken, stage.lane_state(first)) == ([first.lane], "kicked")


def test_a_lane_that_is_paused_or_cancelled_empty_in_between_is_given_back(stage: Stage) -> None:
    stage.redis.delete(keys.WAKEUPS)
    first, second = stage.submit("one"), stage.submit("two")
    stage.model.scenes = [[lambda: stage.cancel(second, "interrupt"), *says("First.")]]
    stage.serve(first, stage.worker("w1"))
    assert (stage.turn(second).status, stage.lane_state(first)) == ("cancelled", None)


def test_a_turn_and_its_calls_have_what_any_process_had_accepted_when_they_were_claimed(stage: Stage) -> None:
    stage.model.scenes = [wants(*SUMS[:2]), says("3 and 7")]
    turn = stage.submit()
    steps: list[str] = []

    class Others(Content):
        def catch_up(self, version: str = "") -> None:
            steps.append(f"catch up: {stage.turn(turn).status}")

    class Agents(StageAgents):
        def runtime(self, name: str, choice: Choice | None = None, workspace: str | None = None) -> AgentRuntime:
            steps.append(f"agent of {workspace}")
            return super().runtime(name, choice, workspace)

    worker = stage.worker("w1", content=Others(), agents=Agents(stage))
    stage.serve(turn, worker)
    assert steps == ["catch up: in_progress", f"agent of {WORKSPACE}"]
    steps.clear()
    stage.answer_calls(turn, worker)
    assert steps == ["catch up: in_progress", f"agent of {WORKSPACE}"] * 2
    assert stage.serve(turn, worker).output_text == "3 and 7"
    assert steps[4:] == ["catch up: in_progress", f"agent of {WORKSPACE}"]
