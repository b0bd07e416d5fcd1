"""Budgets of a turn on a stage of real parts: a call that does not fit is not made, at whichever level."""

from dataclasses import replace

import pytest

from loom_worker.core.errors import ProviderFailed, StreamBroken
from loom_worker.core.values.budgets import Account, CallCost, Limit, Payer
from loom_worker.core.values.json import Json
from loom_worker.core.values.sessions import NewSession
from loom_worker.core.values.turns import Turn
from loom_worker.store.budgets import Budgets
from loom_worker.store.workspaces import Workspaces
from tests.support.models import ONE_CALL, Beat, Killed, says, wants
from tests.support.stage import START_MS, WORKSPACE, Stage

ONE = ("add", {"a": 1, "b": 1})


def limited(stage: Stage, level: str, budget: Json) -> Turn:
    """A turn under a budget of this level."""
    if level == "turn":
        return stage.submit(budget=budget)
    if level == "session":
        stage.sessions.create(WORKSPACE, NewSession(id="s1", budget=budget), now_ms=START_MS)
    elif level == "agent":
        stage.agent = replace(stage.agent, budget=budget)
    else:
        Workspaces(stage.database).patch(WORKSPACE, {"budget": budget}, now_ms=START_MS)
    return stage.submit()


def used(stage: Stage, level: str, key: str) -> Json:
    """What is spent and set aside on an account."""
    account = Account(level, key)  # type: ignore[arg-type]
    [report] = Budgets(stage.database).report([Limit(account, 10**15, 10**12, 10**6)], now_ms=stage.now_ms)
    return dict(report["used"])


def reserved(stage: Stage) -> int:
    """Calls that nobody has settled."""
    with stage.database.read() as tx:
        return int(tx.exec_driver_sql("SELECT count(*) FROM reservations").scalar() or 0)


@pytest.mark.parametrize("level", ["turn", "session", "agent", "workspace"])
def test_a_call_that_does_not_fit_is_not_made(stage: Stage, level: str) -> None:
    turn = stage.serve(limited(stage, level, {"tokens": 15}), stage.worker("w1"))
    assert (turn.status, turn.reason, turn.usage.llm_calls) == ("incomplete", "budget", 0)
    assert stage.model.asked == []
    assert "0 of 15 tokens used" in (turn.error or {})["message"]


def test_what_is_spent_on_a_day_says_when_it_renews(stage: Stage) -> None:
    turn = stage.serve(limited(stage, "workspace", {"day": {"tokens": 15}}), stage.worker("w1"))
    assert "It renews at 2027-01-16T00:00:00" in (turn.error or {})["message"]


@pytest.mark.parametrize("level", ["turn", "session", "agent"])
def test_calls_are_made_until_the_next_does_not_fit(stage: Stage, level: str) -> None:
    stage.model.name = "claude-sonnet-4-5"
    stage.model.scenes = [wants(("note", {}), first_id=n) for n in range(1, 9)]
    turn = stage.serve(limited(stage, level, {"usd": 0.006}), stage.worker("w1"))
    assert (turn.status, turn.reason) == ("incomplete", "budget")
    assert 1 <= turn.usage.llm_calls < 6
    key = {"turn": turn.id, "session": turn.lane, "agent": "default"}[level]
    expected = {"turn": 0.0}.get(level, 0.001 * turn.usage.llm_calls)  # a turn that has ended has no account
    assert used(stage, level, key)["usd"] == pytest.approx(expected)
    asked = [request.max_tokens for request in stage.model.asked]
    assert asked == sorted(asked, reverse=True)
    assert asked[0] < 1000


def test_a_reply_is_asked_to_be_as_short_as_a_budget_needs_it(stage: Stage) -> None:
    turn = stage.answered(says("It is", stop="max_tokens"), budget={"tokens": 1800})
    assert 64 <= stage.model.asked[0].max_tokens < 1000
    assert (turn.status, turn.reason, turn.output_text) == ("incomplete", "budget", "It is")


def test_tool_calls_beyond_a_budget_are_not_run_and_the_turn_ends(stage: Stage) -> None:
    turn = stage.answered(
        wants(("note", {})), wants(ONE, ONE, text="Let me add.", first_id=2), budget={"tool_calls": 2}
    )
    assert (turn.status, turn.reason, turn.output_text) == ("incomplete", "budget", "Let me add.")
    assert stage.ran == ["note"]
    assert [call.status for call in turn.calls] == ["completed", "denied", "denied"]
    assert "1 of 2 tool calls used" in str(turn.error)
    assert stage.live(turn) == stage.rebuilt(turn)


def test_calls_that_were_refused_for_other_reasons_take_nothing_off_a_budget(stage: Stage) -> None:
    stage.model.scenes = [wants(("gone", {})), wants(("note", {}), first_id=2), says("Done.")]
    turn = stage.serve(limited(stage, "session", {"tool_calls": 1}), stage.worker("w1"))
    assert turn.status == "completed"
    assert used(stage, "session", turn.lane)["tool_calls"] == 1


def test_a_refusal_of_the_provider_costs_nothing(stage: Stage) -> None:
    stage.model.scenes = [[ProviderFailed("The key is not valid.")]]
    turn = stage.serve(limited(stage, "session", {"tokens": 100_000}), stage.worker("w1"))
    assert turn.status == "failed"
    assert used(stage, "session", turn.lane)["tokens"] == 0


def test_a_reply_that_broke_off_costs_what_was_sent_and_not_what_might_have_come(stage: Stage) -> None:
    worker = stage.worker("w1")
    stage.model.scenes = [[StreamBroken("The connection was cut.")]]
    turn = limited(stage, "session", {"tokens": 100_000})
    stage.serve(turn, worker)
    broken = used(stage, "session", turn.lane)["tokens"]
    assert 0 < broken == stage.turns.get(WORKSPACE, turn.id).usage.tokens < 1500
    stage.model.scenes = [says("Here I am.")]
    stage.now_ms += 60_000
    stage.lanes.alert(turn.lane)
    assert stage.serve(turn, worker).status == "completed"
    assert used(stage, "session", turn.lane)["tokens"] == broken + ONE_CALL.tokens


@pytest.mark.parametrize("streamed", [[], says("Here I")[:1]])
def test_a_call_whose_worker_died_costs_what_is_known_beside_the_one_that_takes_its_place(
    stage: Stage, streamed: list[Beat]
) -> None:
    def die() -> None:
        raise Killed

    turn = limited(stage, "session", {"tokens": 100_000})
    stage.model.scenes = [[*streamed, die]]
    with pytest.raises(Killed):
        stage.serve(turn, stage.worker("w1"))
    left_aside = used(stage, "session", turn.lane)["tokens"]
    assert left_aside > 1000
    stage.alive.discard("w1")
    stage.lapse(turn)
    stage.model.scenes = [says("Here I am.")]
    ended = stage.serve(turn, stage.worker("w2"))
    assert (ended.status, ended.usage.llm_calls) == ("completed", 2)
    assert ONE_CALL.tokens < ended.usage.tokens == used(stage, "session", turn.lane)["tokens"] < left_aside
    assert reserved(stage) == 0


def test_a_turn_waits_until_others_settle_what_they_have_set_aside(stage: Stage) -> None:
    turn, worker, budgets = limited(stage, "workspace", {"tokens": 3000}), stage.worker("w1"), Budgets(stage.database)
    held = budgets.reserve(Payer(WORKSPACE, "", ""), CallCost(2000, 1000), now_ms=stage.now_ms)
    stage.submit(session="s2")  # is accepted all the same
    stage.model.scenes = [says("Here I am.")]
    assert (stage.serve(turn, worker).status, stage.lane_state(turn), stage.model.asked) == (
        "in_progress",
        "parked",
        [],
    )
    budgets.give_back(held, now_ms=stage.now_ms)  # type: ignore[arg-type]
    stage.lanes.alert(turn.lane)
    assert stage.serve(turn, worker).status == "completed"


def test_turns_whose_calls_nothing_limits_keep_no_accounts(stage: Stage) -> None:
    turn = stage.answered(says("Hello."))
    assert turn.status == "completed"
    with stage.database.read() as tx:
        assert tx.exec_driver_sql("SELECT count(*) FROM spending").scalar() == 0
