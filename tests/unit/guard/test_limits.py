"""Circuit breakers, on a real Valkey whose clock is not waited for: the times that are kept are moved back instead."""

import logging
import os
import socket

import pytest
import redis as redis_py
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.core.metrics import BREAKER_REFUSALS, BREAKERS_OPENED
from loom_worker.guard.limits import HASH, NAMES, BreakerPolicy, Breakers, CallPermit
from tests.support.at_once import at_once
from tests.support.clock import Clock

OWN = f"|{socket.gethostname()}-{os.getpid()}"
"""What the breaker of this process has behind its name."""
DEAD = "unix:///nowhere/at/all.sock"


@pytest.fixture
def breakers(valkey):
    return Breakers(valkey)


def pass_time(valkey, name, seconds):
    """Make everything that is kept of a breaker so much older."""
    for hashed in valkey.scan_iter(f"{HASH}{name}*"):
        for field in ("until_ms", "token_ms"):
            if valkey.hexists(hashed, field):
                valkey.hincrby(hashed, field, -round(seconds * 1000))


def fail(breakers, name="x", times=5):
    for _ in range(times):
        breakers.failed(name)


def half_open(breakers, valkey, name="x"):
    fail(breakers, name)
    pass_time(valkey, name, 30)


def test_what_never_failed_is_closed_and_leaves_no_key(breakers, valkey):
    assert breakers.permit("x") == CallPermit()
    breakers.succeeded("x")
    assert valkey.keys() == []


def test_the_fifth_failure_in_a_row_opens_for_thirty_seconds(breakers):
    fail(breakers, times=4)
    assert breakers.permit("x").state == "closed"
    breakers.failed("x")
    assert breakers.permit("x").open_for_s == pytest.approx(30, abs=1)


def test_a_success_in_between_begins_a_new_row(breakers):
    fail(breakers, times=4)
    breakers.succeeded("x")
    fail(breakers, times=4)
    assert breakers.permit("x").state == "closed"


def test_failures_are_forgotten_when_none_followed_for_a_minute(breakers, valkey):
    fail(breakers, times=4)
    assert 59_000 < valkey.pttl(HASH + "x" + OWN) <= 60_000


def test_one_name_says_nothing_of_another(breakers):
    fail(breakers, "x")
    assert breakers.permit("y") == CallPermit()


def test_after_its_time_one_call_alone_is_the_probe(breakers, valkey):
    half_open(breakers, valkey)
    first, second = breakers.permit("x", probe_s=2.0), breakers.permit("x")
    assert (first.state, second.state) == ("half-open", "open")
    assert second.open_for_s == pytest.approx(2, abs=0.5)


def test_while_a_long_probe_runs_others_ask_again_soon(breakers, valkey):
    half_open(breakers, valkey)
    breakers.permit("x", probe_s=120.0)
    assert breakers.permit("x").open_for_s == 6.0


def test_two_successful_probes_close_it_and_one_does_not(breakers, valkey):
    half_open(breakers, valkey)
    breakers.succeeded("x", breakers.permit("x").token)
    second = breakers.permit("x")
    assert second.state == "half-open"
    breakers.succeeded("x", second.token)
    assert breakers.permit("x") == CallPermit()
    assert valkey.keys() == []


def test_a_failed_probe_opens_it_for_twice_as_long_up_to_a_minute(breakers, valkey):
    half_open(breakers, valkey)
    spans = []
    for _ in range(3):
        breakers.failed("x", breakers.permit("x").token)
        spans.append(breakers.permit("x").open_for_s)
        pass_time(valkey, "x", 60)
    assert spans == [pytest.approx(60, abs=1)] * 3


def test_a_failed_probe_undoes_the_successful_one_before_it(breakers, valkey):
    half_open(breakers, valkey)
    breakers.succeeded("x", breakers.permit("x").token)
    breakers.failed("x", breakers.permit("x").token)
    pass_time(valkey, "x", 60)
    breakers.succeeded("x", breakers.permit("x").token)
    assert breakers.permit("x").state == "half-open"


def test_a_probe_that_was_abandoned_leaves_its_place_to_the_next_call(breakers, valkey):
    half_open(breakers, valkey)
    breakers.abandoned("x", breakers.permit("x").token)
    assert breakers.permit("x").state == "half-open"


def test_a_probe_that_never_reports_loses_its_right_and_its_voice(breakers, valkey):
    half_open(breakers, valkey)
    lost = breakers.permit("x", probe_s=5.0)
    pass_time(valkey, "x", 5)
    second = breakers.permit("x")
    assert second.state == "half-open"
    breakers.failed("x", lost.token)
    assert breakers.permit("x").open_for_s <= 6.0
    breakers.succeeded("x", second.token)
    assert breakers.permit("x").state == "half-open"


@pytest.mark.parametrize("report", ["failed", "succeeded", "abandoned"])
def test_calls_from_before_it_opened_change_nothing(breakers, valkey, report):
    fail(breakers)
    before = valkey.hgetall(HASH + "x" + OWN)
    getattr(breakers, report)("x")
    getattr(breakers, report)("x", "some token")
    assert valkey.hgetall(HASH + "x" + OWN) == before


def test_a_clock_that_was_set_back_keeps_nothing_shut(breakers, valkey):
    fail(breakers)
    pass_time(valkey, "x", -3600)
    assert breakers.open_now(["x"]) == {}
    assert breakers.permit("x", probe_s=5).state == "half-open"
    pass_time(valkey, "x", -3600)
    assert breakers.permit("x", probe_s=5).state == "half-open"


def test_open_now_names_what_is_open_and_never_becomes_the_probe(breakers, valkey):
    fail(breakers, "open")
    half_open(breakers, valkey, "half-open")
    breakers.failed("failed once")
    found = breakers.open_now(["open", "half-open", "failed once", "never heard of", "open"])
    assert found == {"open": pytest.approx(30, abs=1)}
    assert breakers.open_now([]) == {}
    assert breakers.permit("half-open").state == "half-open"


def test_states_name_every_breaker_that_heard_of_a_failure(breakers, valkey):
    fail(breakers, "open")
    half_open(breakers, valkey, "half-open")
    breakers.failed("failed once")
    assert breakers.states() == {"open": "open", "half-open": "half-open", "failed once": "closed"}


def test_states_forget_what_redis_forgot(breakers, valkey):
    breakers.failed("x")
    valkey.zadd(NAMES, {"long gone": 1})
    assert breakers.states() == {"x": "closed"}
    assert valkey.zrange(NAMES, 0, -1) == ["x" + OWN]


def test_every_key_goes_by_itself(breakers, valkey):
    fail(breakers, "open")
    breakers.failed("failed once")
    half_open(breakers, valkey, "probe")
    breakers.permit("probe", probe_s=3000)
    assert [key for key in valkey.scan_iter() if valkey.pttl(key) < 0] == []
    assert valkey.pttl(HASH + "probe" + OWN) > 3_000_000


def test_lost_memory_means_closed(breakers, valkey):
    fail(breakers)
    valkey.flushall()
    assert breakers.permit("x") == CallPermit()


def test_scripts_that_redis_lost_are_sent_again(breakers, valkey):
    breakers.failed("x")
    valkey.script_flush()
    fail(breakers, times=4)
    assert breakers.permit("x").state == "open"


def test_while_redis_is_away_every_breaker_is_closed_and_the_log_has_one_line_a_minute(caplog):
    clock = Clock(100.0)
    with redis_py.Redis.from_url(DEAD, decode_responses=True) as nowhere, caplog.at_level(logging.WARNING):
        breakers = Breakers(nowhere, clock=clock)
        for clock.now_s in range(100, 160, 6):
            breakers.failed("x")
            assert breakers.permit("x") == CallPermit()
            assert (breakers.open_now(["x"]), breakers.states()) == ({}, {})
        assert len(caplog.records) == 1
        clock.now_s = 161
        breakers.permit("x")
    assert len(caplog.records) == 2


def test_a_key_of_another_kind_is_no_fault_of_the_caller(breakers, valkey):
    valkey.set(HASH + "x", "text")
    assert breakers.permit("x") == CallPermit()


def test_redis_is_asked_again_once_it_was_away_for_a_while(valkey):
    clock = Clock(100.0)
    breakers = Breakers(valkey, clock=clock)
    valkey.set(HASH + "x", "text")
    breakers.permit("x")
    valkey.delete(HASH + "x")
    Breakers(valkey, policy=BreakerPolicy(failures=1)).failed("x")
    assert breakers.permit("x").state == "closed"
    clock.now_s += 5.1
    assert breakers.permit("x").state == "open"


def test_of_many_threads_one_gets_the_probe(valkey_server, valkey):
    breakers = Breakers(valkey_server.client())
    half_open(breakers, valkey)
    states = at_once(lambda _: breakers.permit("x").state, range(8))
    assert sorted(states) == ["half-open", *["open"] * 7]


@pytest.fixture
def three(valkey):
    return [Breakers(valkey, process=name) for name in ("one", "two", "three")]


def test_one_sick_process_shuts_nobody_else_out(three):
    sick, well, _ = three
    for _ in range(20):
        sick.failed("x")
    assert sick.permit("x").state == "open"
    assert well.permit("x") == CallPermit()
    assert (sick.open_now(["x"]), well.open_now(["x"])) == ({"x": pytest.approx(30, abs=1)}, {})


def test_once_a_second_process_sees_it_fail_all_leave_it_alone(three):
    one, two, third = three
    fail(one)
    fail(two)
    assert [each.permit("x").state for each in (one, two, third)] == ["open"] * 3
    assert third.open_now(["x"]) == {"x": pytest.approx(30, abs=1)}
    assert third.states() == {"x": "open"}


def test_failures_of_two_processes_are_no_row_if_a_third_succeeds_in_between(three):
    one, two, third = three
    fail(one)
    third.succeeded("x")
    fail(two)
    assert [each.permit("x").state for each in (one, two, third)] == ["open", "open", "closed"]


def test_of_all_processes_one_call_is_the_probe(three, valkey):
    one, two, third = three
    fail(one)
    fail(two)
    pass_time(valkey, "x", 30)
    assert [each.permit("x").state for each in (third, one, two)] == ["half-open", "open", "open"]


def test_a_sick_process_does_not_keep_all_others_out_by_failing_their_probes(three, valkey):
    sick, two, third = three
    fail(sick)
    fail(two)
    pass_time(valkey, "x", 30)
    sick.failed("x", sick.permit("x").token)
    assert sick.permit("x").state == "open"
    for _ in range(2):
        third.succeeded("x", third.permit("x").token)
    assert third.permit("x") == CallPermit()


def test_failed_probes_of_two_processes_open_it_for_all_twice_as_long(three, valkey):
    one, two, third = three
    fail(one)
    fail(two)
    pass_time(valkey, "x", 30)
    for each in (one, two):
        each.failed("x", each.permit("x").token)
    assert third.permit("x").open_for_s == pytest.approx(60, abs=1)


EVENTS = st.lists(st.sampled_from(["fail", "succeed", "let go", "time", "stray"]), max_size=40)


@given(events=EVENTS)
def test_it_does_what_its_description_says(valkey_server, events):
    """Against a model of a few lines: a row of failures, or a span and a row of successes."""
    with valkey_server.client() as client:
        client.flushall()
        breakers = Breakers(client)
        row, span_s, wins, is_over = 0, 0, 0, False
        for event in events:
            if event == "stray":
                breakers.failed("x", "no such token")
                row += span_s == 0
            elif event == "time":
                pass_time(client, "x", 60)
                is_over = True
            else:
                permit = breakers.permit("x")
                expected = "closed" if not span_s else "half-open" if is_over else "open"
                assert permit.state == expected
                if expected == "open":
                    assert permit.open_for_s == pytest.approx(span_s, abs=1)
                    continue
                if event == "fail":
                    breakers.failed("x", permit.token)
                    row += not span_s
                    span_s, wins, is_over = min(span_s * 2, 60), 0, False
                elif event == "succeed":
                    breakers.succeeded("x", permit.token)
                    row, wins = 0, wins + bool(span_s)
                    span_s = 0 if wins == 2 else span_s
                    wins = wins % 2
                else:
                    breakers.abandoned("x", permit.token)
            if row == 5:
                row, span_s, is_over = 0, 30, False


def test_a_session_that_fails_for_ever_opens_nothing_keeps_no_row_of_others_alive_and_is_not_to_be_read(
    breakers, valkey
):
    for session in ("poison", "poison", "a", "b", "c", *["poison"] * 9):
        breakers.failed("x", source=session)
    assert breakers.permit("x").state == "closed"
    valkey.pexpire(HASH + "x" + OWN, 5_000)
    breakers.failed("x", source="poison")
    assert valkey.pttl(HASH + "x" + OWN) <= 5_000
    assert "poison" not in str(valkey.hgetall(HASH + "x" + OWN))
    breakers.failed("x", source="d")
    assert breakers.permit("x").state == "open"


def test_a_session_s_own_probes_open_it_for_nobody_and_those_of_two_do(three, valkey):
    one, two, third = three
    fail(one)
    fail(two)
    pass_time(valkey, "x", 30)
    for each in (one, two, one, two):
        each.failed("x", each.permit("x").token, source="poison")
    probe = third.permit("x")
    assert probe.state == "half-open"
    third.failed("x", probe.token, source="another")
    assert one.permit("x").open_for_s == pytest.approx(60, abs=1)


def test_each_opening_and_each_refusal_is_counted(breakers, valkey, counted):
    fail(breakers, times=4)
    assert counted(BREAKERS_OPENED) == {}
    fail(breakers, times=3)  # two of them came too late to open it again
    assert breakers.permit("x").state == breakers.permit("x").state == "open"
    assert (counted(BREAKERS_OPENED), counted(BREAKER_REFUSALS)) == ({("x",): 1}, {("x",): 2})
    pass_time(valkey, "x", 30)
    breakers.failed("x", breakers.permit("x").token)
    assert (counted(BREAKERS_OPENED), counted(BREAKER_REFUSALS)) == ({("x",): 2}, {("x",): 2})


def test_a_storm_over_many_processes_opens_it_though_none_of_them_sees_five_sessions(valkey):
    processes = [Breakers(valkey, process=str(n)) for n in range(8)]
    for session in range(4):
        for n, process in enumerate(processes[:2]):
            assert process.permit("x").state == "closed" or session > 1
            process.failed("x", source=f"{n}-{session}")
    assert {each.permit("x").state for each in processes} == {"open"}


def test_a_success_of_anyone_begins_a_new_row_over_all_processes(three):
    one, two, third = three
    for n in range(2):
        one.failed("x", source=f"a{n}")
        two.failed("x", source="poison")
    third.succeeded("x")
    for n in range(2):
        one.failed("x", source=f"b{n}")
        two.failed("x", source="poison")
    assert third.permit("x").state == "closed"
    for source in ("c", "d"):
        two.failed("x", source=source)
    assert third.permit("x").state == "open"


def test_names_of_processes_that_are_gone_go_as_others_are_written(three, valkey):
    valkey.zadd(NAMES, {f"x|{n}": 1 for n in range(20)})
    three[0].failed("y")
    assert set(valkey.zrange(NAMES, 0, -1)) == {"y|one"}
