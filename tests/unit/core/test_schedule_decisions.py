from dataclasses import replace
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.core.cron import plan_of
from loom_worker.core.values.schedules import (
    MOST_TIMES,
    Fire,
    Firing,
    MissedTimes,
    Pass,
    Restart,
    Schedule,
    ScheduleState,
    Wait,
    decide,
    plan_key,
)

MINUTE_MS, DAY_MS = 60_000, 24 * 3600 * 1000
NOON = int(datetime.fromisoformat("2026-11-26T12:00Z").timestamp() * 1000)
HOURLY = Schedule("workflow", "weekly", plan_of("0 * * * *", "UTC"))
NAME = "workflow:weekly"


def known(schedule: Schedule = HOURLY, **fields: object) -> ScheduleState:
    state = replace(ScheduleState(schedule.name, cursor_ms=NOON - MINUTE_MS), **fields)
    return replace(state, plan=plan_key(schedule, state))


def decided(
    state: ScheduleState | None,
    now_ms: int,
    *,
    schedule: Schedule = HOURLY,
    missed: MissedTimes = "once",
    is_running: bool = False,
) -> object:
    return decide(schedule, state, now_ms=now_ms, missed=missed, is_running=is_running)


def test_a_schedule_that_is_new_begins_nothing_that_lies_behind_it() -> None:
    assert decided(None, NOON) == Restart("new")


def test_an_edited_plan_counts_from_now_on() -> None:
    assert decided(replace(known(), plan="5 * * * * UTC on"), NOON) == Restart("changed")


def test_enabling_it_again_counts_from_now_on() -> None:
    off = known(enabled=False)
    assert decided(off, NOON) == Wait()
    assert decided(replace(off, enabled=True), NOON) == Restart("changed")


@pytest.mark.parametrize(("offset_ms", "expected"), [(-1, Wait()), (0, Fire(Firing(NAME, NOON, NOON - MINUTE_MS)))])
def test_it_is_begun_at_its_time_and_not_before(offset_ms: int, expected: object) -> None:
    assert decided(known(), NOON + offset_ms) == expected


@pytest.mark.parametrize(
    ("missed", "expected"),
    [
        ("once", Fire(Firing(NAME, NOON + DAY_MS, NOON - MINUTE_MS, 24))),
        ("skip", Pass(Firing(NAME, NOON + DAY_MS, NOON - MINUTE_MS, 25))),
    ],
)
def test_after_a_day_without_workers_the_setting_says_what_becomes_of_it(missed: MissedTimes, expected: object) -> None:
    assert decided(known(), NOON + DAY_MS + 30 * MINUTE_MS, missed=missed) == expected


def test_a_time_that_comes_while_missed_ones_are_skipped_is_begun() -> None:
    assert decided(known(), NOON + DAY_MS, missed="skip") == Fire(Firing(NAME, NOON + DAY_MS, NOON - MINUTE_MS, 24))


def test_a_run_that_has_not_ended_holds_only_a_schedule_that_says_so() -> None:
    patient = replace(HOURLY, skips_if_running=True)
    firing = Firing(NAME, NOON, NOON - MINUTE_MS)
    assert decided(known(), NOON, is_running=True) == Fire(firing)
    assert decided(known(patient), NOON, schedule=patient, is_running=True) == Pass(firing, is_skipped=True)
    assert decided(known(patient), NOON, schedule=patient) == Fire(firing)


def test_a_clock_that_is_set_back_begins_nothing_twice() -> None:
    begun = known(cursor_ms=NOON, last_ms=NOON)
    assert decided(begun, NOON - 30 * MINUTE_MS) == Wait()
    assert decided(begun, NOON) == Wait()
    assert decided(begun, NOON - 2 * DAY_MS) == Restart("clock")
    again = replace(begun, cursor_ms=NOON - 2 * DAY_MS)
    assert decided(again, NOON) == Pass(Firing(NAME, NOON, NOON - 2 * DAY_MS, 47))


def test_a_year_of_missed_minutes_is_gone_through_in_bounded_looks() -> None:
    every = Schedule("agent", "anna", plan_of("* * * * *", "UTC"))
    state, looks = known(every), 0
    now_ms = NOON + 35_000 * MINUTE_MS
    while isinstance(found := decided(state, now_ms, schedule=every), Pass):
        assert found.firing.missed == MOST_TIMES
        state = replace(state, cursor_ms=found.firing.due_ms)
        looks += 1
    assert looks == 3
    assert isinstance(found, Fire)
    assert found.firing.due_ms == now_ms


@given(steps=st.lists(st.integers(-90, 300), max_size=30), missed=st.sampled_from(["once", "skip"]))
def test_whatever_the_clock_does_each_time_is_begun_at_most_once_and_in_order(
    steps: list[int], missed: MissedTimes
) -> None:
    state, now_ms, begun = known(), NOON, list[int]()
    for minutes in steps:
        now_ms += minutes * MINUTE_MS
        found = decided(state, now_ms, missed=missed)
        if isinstance(found, Fire | Pass):
            assert found.firing.due_ms <= now_ms
            state = replace(state, cursor_ms=found.firing.due_ms)
        if isinstance(found, Fire):
            begun.append(found.firing.due_ms)
            state = replace(state, last_ms=found.firing.due_ms)
    assert begun == sorted(set(begun))
