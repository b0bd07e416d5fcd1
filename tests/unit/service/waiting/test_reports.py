"""What turns wait for, as those see it who ask."""

from dataclasses import replace
from typing import Any

import pytest

from loom_worker.agents import load as agent_files
from loom_worker.core.errors import Overloaded, StreamBroken
from loom_worker.core.values.agents import Agent, ApprovalPolicy
from loom_worker.core.values.turns import Turn
from loom_worker.core.values.waiting import Waiting, WaitsFor
from loom_worker.lanes import keys
from loom_worker.lanes.live_waits import LiveWaits
from loom_worker.service.waiting.reports import LATE_MS, WaitReports, in_words
from loom_worker.store.engines.engine import WHOLE
from tests.support.models import Killed, says, wants
from tests.support.stage import START_MS, WORKSPACE, Stage


@pytest.fixture
def waits(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> WaitReports:
    monkeypatch.setattr("loom_worker.service.waiting.reports.now_ms", lambda: stage.now_ms)
    return WaitReports(stage.turns, LiveWaits(stage.redis), agent_files.load(None))


def waiting(stage: Stage, waits: WaitReports, turn: Turn) -> Waiting | None:
    return waits.with_wait(stage.turn(turn)).waiting


def held(stage: Stage) -> Turn:
    """A turn that a worker holds, whose heartbeat goes on."""
    stage.model.scenes = [[Killed()]]
    turn = stage.submit()
    with pytest.raises(Killed):
        stage.serve(turn, stage.worker("w1"))
    stage.redis.hset(keys.worker("w1"), "pid", 1)
    return stage.turn(turn)


def test_a_queued_turn_waits_for_its_lane(stage: Stage, waits: WaitReports) -> None:
    turn = stage.submit()
    assert waiting(stage, waits, turn) == Waiting("lane", START_MS)


@pytest.mark.cases(
    "what, rest, words",
    [
        ("lane", (None, None, None), "queued behind 2 turns of its session for 40 s"),
        ("model", (1, None, None), "the model has been reading for 40 s"),
        ("model", (3, START_MS + 48_000, "refused"), "attempt 3, next in 8 s: refused"),
        ("model", (2, None, "refused"), "attempt 2, the model has been reading for 40 s; before: refused"),
        ("rate_limit", (1, START_MS + 70_000, "busy"), "rate limited by the provider, next in 30 s: busy"),
        ("judges", (None, None, None), "waiting for judges for 40 s"),
    ],
)
def test_a_wait_is_told_in_words(stage: Stage, what: WaitsFor, rest: Any, words: str) -> None:
    turn = replace(stage.submit(), waiting=Waiting(what, START_MS, *rest), position=2)
    assert in_words(turn, START_MS + 40_000) == words


def test_a_turn_that_has_ended_waits_for_nothing(stage: Stage, waits: WaitReports) -> None:
    turn = stage.answered(says("Yes."))
    assert waiting(stage, waits, turn) is None
    assert waits.with_wait(stage.turn(turn)).as_json()["waiting"] is None


def test_a_call_under_way_is_known_from_its_worker(stage: Stage, waits: WaitReports) -> None:
    turn = held(stage)
    told = Waiting("rate_limit", START_MS + 5, attempt=2, next_try_ms=START_MS + 900, last_error="busy (429)")
    waits.live.record(turn, told)
    assert waiting(stage, waits, turn) == told


def test_what_a_former_owner_told_does_not_count(stage: Stage, waits: WaitReports) -> None:
    turn = held(stage)
    waits.live.record(turn, Waiting("rate_limit", 1))
    with stage.database.write(lock=WHOLE) as tx:
        tx.exec_driver_sql("UPDATE turns SET fence = fence + 1")
    assert waiting(stage, waits, turn) == Waiting("model", START_MS)


def test_a_turn_that_is_held_waits_for_its_model_also_if_redis_has_lost_what_was_told(
    stage: Stage, waits: WaitReports
) -> None:
    assert waiting(stage, waits, held(stage)) == Waiting("model", START_MS)


def test_a_turn_whose_worker_died_waits_for_another(stage: Stage, waits: WaitReports) -> None:
    turn = held(stage)
    waits.live.record(turn, Waiting("model", START_MS))
    stage.redis.delete(keys.worker("w1"))
    assert waiting(stage, waits, turn) == Waiting("lane", START_MS)


def test_a_parked_turn_says_when_its_model_is_asked_again_without_redis(stage: Stage, waits: WaitReports) -> None:
    turn = stage.answered([Overloaded("busy (429)", 7.0)])
    stage.redis.flushdb()
    told = waiting(stage, waits, turn)
    assert told == Waiting("rate_limit", START_MS, attempt=0, next_try_ms=START_MS + 7_000, last_error="busy (429)")
    assert told is not None
    assert told.as_json() == {
        "for": "rate_limit",
        "since": "2027-01-15T08:00:00.000Z",
        "attempt": 0,
        "next_try_at": "2027-01-15T08:00:07.000Z",
        "last_error": "busy (429)",
    }


def test_a_parked_turn_that_nobody_takes_up_again_waits_for_a_worker(stage: Stage, waits: WaitReports) -> None:
    turn = stage.answered([StreamBroken("cut")])
    due_ms = stage.turn(turn).parked_until_ms
    assert due_ms is not None
    stage.now_ms = due_ms + LATE_MS
    assert (told := waiting(stage, waits, turn)) is not None
    assert told.waits_for == "model"
    stage.now_ms += 1
    assert waiting(stage, waits, turn) == Waiting("lane", due_ms, attempt=0, last_error="cut")


def test_a_turn_waits_for_its_tools_since_they_were_sent(stage: Stage, waits: WaitReports) -> None:
    stage.model.scenes = [wants(("add", {"a": 1, "b": 2}))]
    turn = stage.submit()
    stage.now_ms += 500
    stage.serve(turn, stage.worker("w1"))
    assert waiting(stage, waits, turn) == Waiting("tools", START_MS + 500, attempt=1)


def test_a_turn_waits_for_a_person_since_it_asked(stage: Stage, waits: WaitReports) -> None:
    stage.agent = Agent("default", system_prompt="You help.", approval=ApprovalPolicy(("add",)))
    stage.model.scenes = [wants(("add", {"a": 1, "b": 2}))]
    turn = stage.submit()
    stage.now_ms += 500
    stage.serve(turn, stage.worker("w1"))
    stage.now_ms += 60_000
    assert waiting(stage, waits, turn) == Waiting("person", START_MS + 500)


def test_a_page_of_turns_is_told_of_as_each_is(stage: Stage, waits: WaitReports) -> None:
    one = stage.answered([StreamBroken("cut")])
    two = stage.submit()
    page = stage.turns.page(WORKSPACE, {}, limit=10, after=None)
    told = {turn.id: turn.waiting.waits_for for turn in waits.with_waits(page.items) if turn.waiting}
    assert told == {one.id: "model", two.id: "lane"}


def test_figures_tell_how_long_the_oldest_of_each_kind_has_waited(stage: Stage, waits: WaitReports) -> None:
    assert waits.figures(WORKSPACE)["oldest_waiting_for"] is None
    running = held(stage)
    waits.live.record(running, Waiting("model", START_MS + 1_000))
    stage.now_ms = START_MS + 2_000
    stage.submit()
    stage.now_ms = START_MS + 61_000
    figures = waits.figures(None)
    assert figures["waiting_ages"] == {
        "lane": 59.0,
        "model": 60.0,
        "rate_limit": 0.0,
        "tools": 0.0,
        "agents": 0.0,
        "judges": 0.0,
        "person": 0.0,
    }
    assert (figures["oldest_running_age_s"], figures["oldest_waiting_age_s"]) == (61.0, 60.0)
    assert (figures["oldest_waiting_for"], figures["queued"]) == ("model", 1)
    assert waits.figures("another")["oldest_running_age_s"] is None
