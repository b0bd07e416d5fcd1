from dataclasses import replace

import pytest

from loom_worker.supervise.decide import (
    DEATHS_TOO_MANY,
    DEATHS_WITHIN_S,
    LONGEST_PAUSE_S,
    Action,
    Row,
    Spec,
    decide,
    died,
    next_look_s,
)

VALKEY = Row(Spec("valkey", ("v",), stop_stage=3, grace_s=5.0, is_foundation=True))
WEB = Row(Spec("web", ("w",), stop_stage=0, grace_s=10.0))
ONE = Row(Spec("worker-1", ("w",), stop_stage=1, grace_s=20.0))
TWO = Row(Spec("worker-2", ("w",), stop_stage=1, grace_s=20.0))


def up(*rows: Row, now_s: float = 100.0, is_open: bool = True) -> list[tuple[str, str]]:
    return [(a.verb, a.name) for a in decide(rows, goal="up", now_s=now_s, is_open=is_open)]


def down(*rows: Row, now_s: float = 100.0) -> list[tuple[str, str]]:
    return [(a.verb, a.name) for a in decide(rows, goal="down", now_s=now_s, is_open=False)]


def running(row: Row) -> Row:
    return replace(row, pid=7)


def test_the_foundation_starts_alone_until_it_is_open() -> None:
    assert up(VALKEY, WEB, ONE, is_open=False) == [("start", "valkey")]


def test_all_the_others_start_together_once_it_is_open() -> None:
    assert up(running(VALKEY), WEB, ONE, TWO) == [("start", "web"), ("start", "worker-1"), ("start", "worker-2")]


def test_what_runs_is_not_started_again() -> None:
    assert up(running(VALKEY), running(WEB)) == []


def test_a_restart_waits_for_its_pause() -> None:
    row = died(running(WEB), 100.0)
    assert up(row, now_s=100.1) == []
    assert up(row, now_s=row.start_at_s) == [("start", "web")]


def test_each_recent_death_doubles_the_pause_up_to_the_longest() -> None:
    row, pauses = WEB, []
    for at in range(4):
        row = died(running(row), float(at))
        pauses.append(row.start_at_s - at)
    assert pauses == pytest.approx([0.2, 0.4, 0.8, 1.6])
    for at in range(4, 12):
        row = died(row, float(at))
    assert row.start_at_s - 11.0 == pytest.approx(LONGEST_PAUSE_S)


def test_five_deaths_within_a_minute_end_everything_and_nothing_else_is_started() -> None:
    row = ONE
    for at in range(DEATHS_TOO_MANY):
        row = died(running(row), float(at))
    assert up(VALKEY, row, WEB) == [("give_up", "worker-1")]


def test_five_deaths_spread_over_more_than_a_minute_are_survived() -> None:
    row = ONE
    for n in range(DEATHS_TOO_MANY * 3):
        row = died(running(row), n * DEATHS_WITHIN_S / 4)
        assert all(verb != "give_up" for verb, _ in up(row, now_s=row.start_at_s))


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ((VALKEY, WEB, ONE, TWO), ["web"]),
        ((VALKEY, ONE, TWO), ["worker-1", "worker-2"]),
        ((VALKEY,), ["valkey"]),
        ((), []),
    ],
)
def test_only_the_lowest_stage_that_still_runs_is_asked_to_stop(rows: tuple[Row, ...], expected: list[str]) -> None:
    assert down(*map(running, rows)) == [("ask", name) for name in expected]


def test_what_was_asked_is_left_alone_within_its_grace_and_killed_after_it() -> None:
    asked = replace(running(WEB), asked_at_s=100.0)
    assert down(asked, running(ONE), now_s=109.9) == []
    assert down(asked, running(ONE), now_s=110.0) == [("kill", "web")]


def test_what_was_killed_is_not_killed_again() -> None:
    assert down(replace(running(WEB), asked_at_s=1.0, is_killed=True)) == []


def test_a_second_interrupt_kills_everything_at_once_whatever_its_stage() -> None:
    rows = (running(VALKEY), replace(running(WEB), asked_at_s=99.0), ONE)
    actions = decide(rows, goal="dead", now_s=100.0, is_open=False)
    assert actions == (Action("kill", "valkey"), Action("kill", "web"))


def test_the_next_look_is_at_the_first_start_or_the_first_grace_that_ends() -> None:
    waiting = (replace(WEB, start_at_s=5.0), replace(ONE, start_at_s=3.0), running(TWO))
    assert next_look_s(waiting, goal="up") == 3.0
    assert next_look_s([running(WEB)], goal="up") is None
    asked = (replace(running(ONE), asked_at_s=1.0), replace(running(WEB), asked_at_s=2.0), running(VALKEY))
    assert next_look_s(asked, goal="down") == 12.0
    assert next_look_s([running(WEB)], goal="down") is None


def test_a_process_that_does_no_work_is_asked_to_end_and_killed_after_its_grace() -> None:
    row = replace(running(ONE), remedy="ask")
    assert up(row, running(TWO)) == [("ask", "worker-1")]
    asked = replace(row, asked_at_s=100.0)
    assert up(asked, now_s=119.9) == []
    assert next_look_s([asked], goal="up") == 120.0
    assert up(asked, now_s=120.0) == [("kill", "worker-1")]
    killed = replace(asked, is_killed=True)
    assert up(killed, now_s=200.0) == []
    assert next_look_s([killed], goal="up") is None


def test_a_process_that_would_not_hear_is_killed_at_once_and_once() -> None:
    row = replace(running(ONE), remedy="kill")
    assert up(row) == [("kill", "worker-1")]
    assert up(replace(row, is_killed=True)) == []
    assert down(row) == [("kill", "worker-1")]


def test_while_one_is_ended_others_are_still_started() -> None:
    assert up(replace(running(ONE), remedy="ask"), TWO) == [("start", "worker-2"), ("ask", "worker-1")]


def test_the_end_of_one_that_did_no_work_counts_as_a_death_and_leaves_no_trace_on_the_next() -> None:
    row = died(replace(running(ONE), remedy="ask", asked_at_s=99.0, is_killed=True), 100.0)
    assert row == Row(ONE.spec, deaths=(100.0,), start_at_s=pytest.approx(100.2))
