"""The watch over the model's calls: what others see of a wait, what the log says, what the journal keeps."""

import json
import logging
from collections.abc import Callable
from dataclasses import replace

import pytest

from loom_worker.core.errors import LeftAlone, Overloaded, StreamBroken
from loom_worker.core.values.chat import Watch
from loom_worker.core.values.json import Json
from loom_worker.core.values.turns import Turn
from loom_worker.lanes import keys
from loom_worker.llm.provider_errors import RATE_LIMIT
from loom_worker.turn.decide import MAX_WAITS
from loom_worker.turn.waits import QUIET_MS, SHOWN_AFTER_MS, SHOWN_AGAIN_MS
from tests.support.models import Beat, says
from tests.support.stage import START_MS, Stage


def during(stage: Stage, act: Callable[[Watch], None]) -> list[Beat]:
    """A reply during whose call something happens to its watch."""
    return [lambda: act(stage.model.asked[-1].watch), *says("Yes.")]


def record(stage: Stage, turn: Turn) -> Json | None:
    """What other processes read."""
    raw = stage.redis.get(keys.waiting(turn.id))
    return None if raw is None else json.loads(raw)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the log says of waits."""
    found = (entry for entry in caplog.records if entry.name.endswith("turn.waits"))
    return [entry.getMessage() for entry in found if entry.levelno == logging.WARNING]


def test_a_call_is_shown_once_it_lasts_and_again_before_its_record_goes(stage: Stage) -> None:
    seen: list[Json | None] = []
    turn = stage.submit()

    def act(watch: Watch) -> None:
        for passed_ms in (0, SHOWN_AFTER_MS, SHOWN_AGAIN_MS - 1, 1):
            stage.now_ms += passed_ms
            watch.silent()
            seen.append(record(stage, turn))
            stage.redis.delete(keys.waiting(turn.id))

    stage.model.scenes = [during(stage, act)]
    stage.serve(turn, stage.worker("w1"))
    assert [bool(each) for each in seen] == [False, True, False, True]
    assert seen[1] is not None
    assert seen[1]["fence"] == 1
    assert seen[1]["waiting"] == {
        "waits_for": "model",
        "since_ms": START_MS,
        "attempt": 0,
        "next_try_ms": None,
        "last_error": None,
    }


def test_a_failed_try_is_shown_at_once_with_the_next_one(stage: Stage) -> None:
    seen: list[Json | None] = []
    turn = stage.submit()

    def act(watch: Watch) -> None:
        watch.asked("played")
        watch.failed(Overloaded("busy (429)", 2.0), 2.0)
        seen.append(record(stage, turn))
        watch.asked("played")
        seen.append(record(stage, turn))

    stage.model.scenes = [during(stage, act)]
    stage.serve(turn, stage.worker("w1"))
    told = [each["waiting"] for each in seen if each]
    assert [(one["waits_for"], one["attempt"], one["next_try_ms"]) for one in told] == [
        ("rate_limit", 1, START_MS + 2_000),
        ("model", 2, None),
    ]
    assert {one["last_error"] for one in told} == {"busy (429)"}


def test_a_silent_model_is_told_of_once(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    def act(watch: Watch) -> None:
        watch.asked("played")
        for _ in range(4):
            stage.now_ms += QUIET_MS // 2
            watch.silent()

    turn = stage.answered(during(stage, act))
    assert warnings(caplog) == ["waiting for played (scripted) for 10 s: nothing came (attempt 1)"]
    [line] = (entry for entry in caplog.records if entry.name.endswith("turn.waits"))
    assert (line.__dict__["session"], line.__dict__["turn"]) == (turn.session_id, turn.id)


def test_a_model_that_says_something_now_and_then_is_no_silent_one(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    def act(watch: Watch) -> None:
        for _ in range(10):
            stage.now_ms += QUIET_MS - 1
            watch.silent()
            watch.received()

    stage.answered(during(stage, act))
    assert warnings(caplog) == []


def test_a_turn_that_is_parked_for_its_provider_is_told_of_once_however_often_it_is_tried(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    turn, worker = stage.submit(), stage.worker("w1")
    for _ in range(MAX_WAITS + 1):
        stage.model.scenes = [[StreamBroken("The reply was cut.")]]
        turn = stage.serve(turn, worker)
        stage.lapse(turn)
    assert turn.status == "failed"
    assert len(warnings(caplog)) == 1
    assert "it is asked again in 2 s" in warnings(caplog)[0]
    assert "last error: The reply was cut." in warnings(caplog)[0]


def test_the_journal_keeps_a_wait_over_workers(stage: Stage) -> None:
    def busy(watch: Watch) -> None:
        watch.asked("played")
        watch.asked("played")

    turn = stage.submit()
    for n in range(2):
        stage.model.scenes = [[lambda: busy(stage.model.asked[-1].watch), Overloaded("busy", 3.0)]]
        stage.serve(turn, stage.worker(f"w{n}"))
        stage.now_ms += 60_000
        stage.lapse(turn)
    waited = [step.payload for step in stage.journal(turn) if step.kind == "waited"]
    assert [(one["for"], one["tries"], one["since_ms"], one["last_error"]) for one in waited] == [
        ("rate_limit", 2, START_MS, "busy"),
        ("rate_limit", 4, START_MS, "busy"),
    ]


def test_a_provider_that_is_left_alone_keeps_its_last_error(stage: Stage) -> None:
    turn, worker = stage.submit(), stage.worker("w1")
    for error in (StreamBroken("The reply was cut."), LeftAlone("It is left alone.", 5.0)):
        stage.model.scenes = [[error]]
        turn = stage.serve(turn, worker)
        stage.lapse(turn)
    waited = [step.payload for step in stage.journal(turn) if step.kind == "waited"]
    assert [(one["for"], one["last_error"]) for one in waited] == [("model", "The reply was cut.")] * 2


def test_a_redis_that_is_away_holds_up_no_reply(stage: Stage) -> None:
    def act(watch: Watch) -> None:
        stage.redis.set(keys.waiting(turn.id), "")
        stage.redis.config_set("maxmemory", "1")
        try:
            watch.failed(StreamBroken("cut"), 1.0)
        finally:
            stage.redis.config_set("maxmemory", "0")

    turn = stage.submit()
    stage.model.scenes = [during(stage, act)]
    assert stage.serve(turn, stage.worker("w1")).output_text == "Yes."


@pytest.mark.parametrize(
    ("error", "waits_for"),
    [
        (Overloaded("429 without a time", None, RATE_LIMIT), "rate_limit"),
        (Overloaded("529 with a time", 4.0), "rate_limit"),
        (Overloaded("503", None), "model"),
        (LeftAlone("The breaker is open.", 5.0), "model"),
        (StreamBroken("cut"), "model"),
    ],
)
def test_only_a_provider_that_asked_to_wait_is_waited_for_as_such(
    stage: Stage, error: Exception, waits_for: str
) -> None:
    turn = stage.answered([error])
    [waited] = [step.payload for step in stage.journal(turn) if step.kind == "waited"]
    assert waited["for"] == waits_for


def impatient(stage: Stage, timeout_s: float) -> Stage:
    stage.settings = replace(stage.settings, limits=replace(stage.settings.limits, turn_timeout_s=timeout_s))
    return stage


def test_a_pause_before_the_model_is_asked_again_is_running_time_and_ends_with_it(stage: Stage) -> None:
    turn, worker = stage.submit(), impatient(stage, 3.0).worker("w1")
    spent_ms = []
    while not turn.is_finished and len(spent_ms) < MAX_WAITS:
        stage.model.scenes = [[StreamBroken("The reply was cut.")]]
        turn = stage.serve(turn, worker)
        spent_ms.append(turn.run_ms // 1000)
        stage.lapse(turn)
    assert (turn.reason, (turn.error or {})["type"]) == ("limits", "timeout")
    assert spent_ms == [2, 3, 3]


@pytest.mark.parametrize(
    ("error", "counted_s"),
    [
        (Overloaded("slow down (429)", 30.0, RATE_LIMIT), 0),
        (Overloaded("slow down (429)", None, RATE_LIMIT), 2),
        (Overloaded("slow down (429)", 0.5, RATE_LIMIT), 1),
        (LeftAlone("The provider is left alone.", 30.0), 10),
    ],
)
def test_of_a_pause_only_what_the_provider_named_is_no_running_time(
    stage: Stage, error: Overloaded, counted_s: int
) -> None:
    turn, worker = stage.submit(), impatient(stage, 10.0).worker("w1")
    stage.model.scenes = [[error]]
    turn = stage.serve(turn, worker)
    assert (turn.status, turn.run_ms // 1000) == ("in_progress", counted_s)


def test_a_wait_that_the_provider_named_within_a_call_is_no_running_time(stage: Stage) -> None:
    def act(watch: Watch) -> None:
        watch.failed(StreamBroken("The reply was cut."), 0.25)
        watch.failed(Overloaded("slow down (429)", 3600.0, RATE_LIMIT), 3600.0)

    assert stage.answered(during(stage, act)).run_ms == 0
