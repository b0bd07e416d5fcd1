from dataclasses import replace

import pytest

from loom_worker.supervisor.decide import (
    DEATHS_TOO_MANY,
    LONGEST_PAUSE_S,
    STEADY_S,
    Action,
    Row,
    Spec,
    decide,
    died,
    is_failing,
    next_look_s,
)

VALKEY = Row(Spec("valkey", ("v",), stop_stage=3, grace_s=5.0, is_foundation=True, is_indispensable=True))
WEB = Row(Spec("web", ("w",), stop_stage=0, grace_s=10.0, is_indispensable=True))
ONE = Row(Spec("worker-1", ("w",), stop_stage=1, grace_s=20.0))
TWO = Row(Spec("worker-2", ("w",), stop_stage=1, grace_s=20.0))


def up(*rows: Row, now_s: float = 100.0, is_open: bool = True, has_served: bool = False) -> list[tuple[str, str]]:
    actions = decide(rows, goal="up", now_s=now_s, is_open=is_open, has_served=has_served)
    return [(a.verb, a.name) for a in actions]


def down(*rows: Row, now_s: float = 100.0) -> list[tuple[str, str]]:
    return [(a.verb, a.name) for a in decide(rows, goal="down", now_s=now_s, is_open=False, has_served=True)]


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


def failed(row: Row, times: int = DEATHS_TOO_MANY) -> Row:
    """After so many deaths in a row, the last one just now."""
    for _ in range(times):
        row = died(replace(row, pid=7, started_at_s=99.0), 100.0)
    return row


def test_each_death_in_a_row_doubles_the_pause_up_to_the_longest() -> None:
    pauses = [failed(WEB, times).start_at_s - 100.0 for times in (1, 2, 3, 4, 5)]
    assert pauses == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2])
    assert failed(WEB, 5000).start_at_s - 100.0 == LONGEST_PAUSE_S


@pytest.mark.parametrize("name", ["valkey", "web"])
def test_what_is_indispensable_and_fails_before_anybody_was_served_is_given_up(name: str) -> None:
    rows = {"valkey": VALKEY, "web": WEB, "worker-1": ONE}
    rows[name] = failed(rows[name])
    assert up(*rows.values()) == [("give_up", name)]


def test_a_worker_that_fails_ends_nothing_even_at_the_first_start() -> None:
    row = failed(ONE, 100)
    assert up(running(VALKEY), running(WEB), row, TWO, now_s=101.0) == [("start", "worker-2")]
    assert up(running(WEB), row, now_s=row.start_at_s) == [("start", "worker-1")]


def test_once_anybody_was_served_nothing_is_given_up() -> None:
    web, valkey = failed(WEB, 100), failed(VALKEY, 100)
    assert up(valkey, web, now_s=web.start_at_s, has_served=True) == [("start", "valkey"), ("start", "web")]


def test_one_that_could_not_be_started_has_died_once_more() -> None:
    assert died(failed(ONE, 3), 100.0).deaths == 4


def test_a_process_that_ran_for_a_while_begins_anew() -> None:
    again = replace(failed(ONE), pid=7, started_at_s=104.0)
    assert is_failing(failed(ONE), 103.0)
    assert is_failing(again, 104.0 + STEADY_S - 0.1)
    assert not is_failing(again, 104.0 + STEADY_S)
    assert died(again, 104.0 + STEADY_S).deaths == 1
    assert died(again, 104.0 + STEADY_S - 0.1).deaths == DEATHS_TOO_MANY + 1


@pytest.mark.cases(
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
    actions = decide(rows, goal="dead", now_s=100.0, is_open=False, has_served=False)
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
    assert row == Row(ONE.spec, deaths=1, start_at_s=pytest.approx(100.2))
