"""RateLimiter, on a real Valkey whose clock is not waited for: the times that are kept are moved back instead."""

import pytest
import redis as redis_py
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.core.errors import ToolFailed
from loom_worker.core.values.tools import Rate
from loom_worker.guard.limits import TIMES, RateLimiter, Taken

THREE_A_MINUTE = Rate(3, 60.0)


@pytest.fixture
def rates(valkey):
    return RateLimiter(valkey)


def pass_time(client, seconds, name="x"):
    times = client.lrange(TIMES + name, 0, -1)
    for n, each in enumerate(times):
        client.lset(TIMES + name, n, int(each) - round(seconds * 1_000_000))


def test_as_many_calls_as_allowed_go_at_once_and_the_next_waits(rates):
    waits = [rates.take("x", THREE_A_MINUTE).wait_s for _ in range(4)]
    assert waits[:3] == [0, 0, 0]
    assert waits[3] == pytest.approx(60, abs=1)


def test_a_call_that_must_wait_is_not_counted(rates, valkey):
    for _ in range(9):
        rates.take("x", THREE_A_MINUTE)
    pass_time(valkey, 60.1)
    assert [rates.take("x", THREE_A_MINUTE).wait_s > 0 for _ in range(4)] == [False, False, False, True]


def test_the_wait_is_until_the_oldest_call_is_out_of_the_period(rates, valkey):
    rates.take("x", THREE_A_MINUTE)
    pass_time(valkey, 45)
    rates.take("x", THREE_A_MINUTE)
    rates.take("x", THREE_A_MINUTE)
    assert rates.take("x", THREE_A_MINUTE).wait_s == pytest.approx(15, abs=1)


def test_a_caller_learns_how_many_calls_are_left_and_when_there_is_one_more(rates, valkey):
    assert rates.take("x", THREE_A_MINUTE).left == 2
    pass_time(valkey, 45)
    made = rates.take("x", THREE_A_MINUTE)
    assert made.left == 1
    assert made.more_in_s == pytest.approx(15, abs=1)
    pass_time(valkey, 20)
    assert rates.take("x", THREE_A_MINUTE).left == 1
    rates.take("x", THREE_A_MINUTE)
    refused = rates.take("x", THREE_A_MINUTE)
    assert (refused.left, refused.more_in_s) == (0, refused.wait_s)


def test_each_name_has_its_own_calls(rates):
    for _ in range(3):
        rates.take("x", THREE_A_MINUTE)
    assert rates.take("y", THREE_A_MINUTE).wait_s == 0


def test_no_more_times_are_kept_than_needed_and_they_go_by_themselves(rates, valkey):
    for _ in range(10):
        rates.take("x", THREE_A_MINUTE)
        pass_time(valkey, 61)
    assert valkey.llen(TIMES + "x") == 3
    assert 59_000 < valkey.pttl(TIMES + "x") <= 60_001


def test_a_rate_that_became_lower_holds_at_once(rates):
    for _ in range(3):
        rates.take("x", THREE_A_MINUTE)
    assert rates.take("x", Rate(1, 60.0)).wait_s > 0


def test_a_clock_that_was_set_back_does_not_stop_the_calls(rates, valkey):
    for _ in range(3):
        rates.take("x", THREE_A_MINUTE)
    pass_time(valkey, -30)
    assert rates.take("x", THREE_A_MINUTE).wait_s == pytest.approx(60, abs=1)
    pass_time(valkey, -3600)
    assert rates.take("x", THREE_A_MINUTE).wait_s == 0


@pytest.mark.parametrize("rate", [Rate(0, 1.0), Rate(1, 0.0), Rate(-1, 1.0)])
def test_a_rate_that_allows_nothing_is_a_mistake(rates, rate):
    with pytest.raises(ValueError, match="x: a rate"):
        rates.take("x", rate)


def test_while_redis_is_away_calls_are_made():
    with redis_py.Redis.from_url("unix:///nowhere/at/all.sock") as nowhere:
        assert RateLimiter(nowhere).take("x", Rate(9, 3600.0)) == Taken(0, 9, 0)


class Waiting:
    """A clock that goes on only while someone waits, and takes the times in Redis along."""

    def __init__(self, client):
        self.client = client
        self.now_s = 0.0
        self.pauses = []

    def pause(self, wait_s):
        self.pauses.append(wait_s)
        self.now_s += wait_s
        pass_time(self.client, wait_s)

    def clock(self):
        return self.now_s


def test_a_call_waits_until_it_may_be_made(valkey):
    waiting = Waiting(valkey)
    rates = RateLimiter(valkey, clock=waiting.clock)
    for _ in range(5):
        rates.wait("x", Rate(2, 10.0), at_most_s=15.0, pause=waiting.pause)
    assert waiting.now_s == pytest.approx(20, abs=1)
    assert valkey.llen(TIMES + "x") == 2


def test_a_wait_that_would_be_too_long_is_not_begun(valkey):
    waiting = Waiting(valkey)
    rates = RateLimiter(valkey, clock=waiting.clock)
    rates.take("weather", Rate(1, 60.0))
    with pytest.raises(ToolFailed, match=r"1 call in 60 s may be made, .* try again in 60 s") as caught:
        rates.wait("weather", Rate(1, 60.0), at_most_s=20.0, pause=waiting.pause)
    assert caught.value.code == "UNAVAILABLE"
    assert waiting.pauses == []


def test_who_is_overtaken_again_and_again_gives_up_in_time(valkey):
    waiting = Waiting(valkey)
    rates = RateLimiter(valkey, clock=waiting.clock)
    rate = Rate(1, 4.0)

    def overtaken(wait_s):
        waiting.pause(wait_s)
        assert rates.take("x", rate).wait_s == 0

    rates.take("x", rate)
    with pytest.raises(ToolFailed):
        rates.wait("x", rate, at_most_s=10.0, pause=overtaken)
    assert len(waiting.pauses) == 2


STEPS = st.lists(st.one_of(st.just("take"), st.floats(0.01, 15.0)), max_size=60)


@given(calls=st.integers(1, 5), per_s=st.floats(1.0, 20.0), steps=STEPS)
def test_no_period_ever_has_more_calls_than_allowed(valkey_server, calls, per_s, steps):
    with valkey_server.client() as client:
        client.flushall()
        rates, rate, now_s, taken = RateLimiter(client), Rate(calls, per_s), 0.0, []
        for step in steps:
            if step != "take":
                now_s += step
                pass_time(client, step)
                continue
            in_period = sum(each > now_s - per_s for each in taken)
            made = rates.take("x", rate)
            wait_s = made.wait_s
            # The steps' clock stands still while Redis' own goes on: a few milliseconds belong to neither.
            if wait_s == 0:
                taken.append(now_s)
                in_period = sum(each > now_s - per_s + 0.5 for each in taken)
                assert in_period <= calls
                assert made.left <= calls - in_period
                assert made.more_in_s <= per_s + 0.001
            else:
                assert in_period >= calls
                assert wait_s <= per_s + 0.001
