from typing import Any

import pytest

from loom_worker.core.settings import LaneSettings
from loom_worker.lanes import keys
from loom_worker.lanes.lanes import Lanes, Lease
from loom_worker.lanes.readiness import (
    AFTER_S,
    SLEPT_S,
    Idleness,
    Readiness,
    WorkerState,
    problems,
    read_readiness,
    stuck,
)
from tests.support.busy_threads import BusyThreads
from tests.support.clock import Clock

LANE = "a1"
LONG_S = AFTER_S + 1


class Shop:
    """Two threads, of which a test says how many are at work, and a clock that beats go by."""

    def __init__(self) -> None:
        self.busy = 0
        self.clock = Clock(100.0)
        self.idleness = Idleness(BusyThreads(2, lambda: self.busy), clock=self.clock)

    def idle_ms_after(self, beats: int) -> int:
        """What is told after this many beats, a second apart."""
        for _ in range(beats):
            self.clock.now_s += 1
            told = self.idleness.fields()
        return told["idle_ms"]


def test_a_worker_with_a_free_thread_grows_idle_with_every_beat() -> None:
    shop = Shop()
    shop.busy = 1
    assert shop.idle_ms_after(20) == 20_000
    assert shop.idleness.fields() == {"threads": 2, "busy": 1, "idle_ms": 20_000}


def test_a_lane_that_is_taken_ends_the_idleness() -> None:
    shop = Shop()
    shop.idle_ms_after(20)
    shop.idleness.ends()
    assert shop.idle_ms_after(1) == 1_000


def test_a_thread_that_came_free_just_now_is_not_idle_for_as_long_as_it_worked() -> None:
    shop = Shop()
    shop.busy = 2
    assert shop.idle_ms_after(60) == 0
    shop.busy = 1
    assert shop.idle_ms_after(1) == 1_000


def test_a_process_that_was_stopped_itself_has_not_been_idle_meanwhile() -> None:
    shop = Shop()
    shop.idle_ms_after(3)
    shop.clock.now_s += SLEPT_S + 60
    assert shop.idleness.fields()["idle_ms"] == 0
    assert shop.idle_ms_after(2) == 2_000


def worker(name: str = "w1", *, threads: int = 4, busy: int = 0, idle_s: float = LONG_S) -> WorkerState:
    return WorkerState(name, "host", frozenset({1}), threads, busy, idle_s)


FULL = worker("full", busy=4, idle_s=0.0)
TAKING = worker("taking", busy=1, idle_s=0.3)
TOOLS = worker("tools", threads=0)


@pytest.mark.cases(
    ("workers", "unclaimed_s", "found"),
    [
        ((worker(),), LONG_S, ["w1"]),
        ((worker("w1"), worker("w2", busy=3), TOOLS), LONG_S, ["w1", "w2"]),
        ((worker("w1"), FULL), LONG_S, ["w1"]),
        ((worker(),), 0.0, []),
        ((worker(),), AFTER_S - 1, []),
        ((worker(idle_s=AFTER_S - 1),), LONG_S, []),
        ((worker(), TAKING), LONG_S, []),
        ((FULL, FULL), 600.0, []),
        ((TOOLS,), LONG_S, []),
        ((), LONG_S, []),
    ],
    ids=[
        "free, and wake-ups wait",
        "all that are free",
        "beside one that is busy",
        "nothing waits",
        "not for long",
        "not idle for long",
        "another takes turns, so the lane is ill",
        "all wait for a model",
        "tools alone",
        "nobody is there",
    ],
)
def test_stuck_is_who_could_take_turns_and_does_not_while_nobody_else_does(
    workers: tuple[WorkerState, ...], unclaimed_s: float, found: list[str]
) -> None:
    assert [one.name for one in stuck(Readiness(workers, unclaimed_s))] == found


def test_the_reasons_name_ages_and_workers() -> None:
    assert problems(Readiness((FULL, TAKING), 600.0)) == ()
    assert problems(Readiness((TOOLS,), 0.0)) == ("workers: none that takes turns is alive",)
    (reason,) = problems(Readiness((worker("w1", idle_s=31.4), worker("w2", idle_s=40.0)), 17.2))
    assert "alive but not consuming: wake-ups have waited for 17 s" in reason
    assert "w1 for 31 s, w2 for 40 s" in reason


def pass_by(client: Any, lanes: Lanes, lane: str = LANE) -> list[str]:
    """Let the lane's time run out, and sweep."""
    client.zadd(keys.LEASES, {lane: 1}, xx=True)
    return lanes.expired(limit=10)


def woken_in_vain(client: Any, lanes: Lanes, lane: str = LANE, *, since_ms: int | None = None) -> None:
    """A lane that the sweep has rung once, and that was not answered."""
    lanes.submit(lane, [(1, f"turn-{lane}")])
    assert pass_by(client, lanes, lane) == [lane]
    if since_ms is not None:
        client.hset(keys.lease(lane), "since", since_ms)


def redis_ms(client: Any) -> int:
    seconds, micros = client.time()
    return int(seconds * 1000 + micros // 1000)


def test_a_wakeup_is_unclaimed_once_the_sweep_itself_has_sent_one_in_vain(client: Any, lanes: Lanes) -> None:
    woken_in_vain(client, lanes)
    assert read_readiness(client).unclaimed_s == 0.0
    client.hset(keys.lease(LANE), "since", redis_ms(client) - 17_000)
    pass_by(client, lanes)
    assert 17.0 <= read_readiness(client).unclaimed_s < 30.0
    assert 0 < client.pttl(keys.UNCLAIMED) <= 2 * LaneSettings().max_kick_s * 1000


def answer(lanes: Lanes) -> Lease:
    lease = lanes.take(LANE, "t1")
    assert lease is not None
    return lease


def test_an_answer_makes_the_count_begin_anew(client: Any, lanes: Lanes) -> None:
    woken_in_vain(client, lanes, since_ms=1)
    lanes.release(answer(lanes))
    pass_by(client, lanes)
    assert read_readiness(client).unclaimed_s == 0.0
    pass_by(client, lanes)
    assert read_readiness(client).unclaimed_s < 10.0


@pytest.mark.parametrize("state", ["running", "parked", "dropped"])
def test_a_lane_that_was_taken_is_not_reported_as_unclaimed(client: Any, lanes: Lanes, state: str) -> None:
    woken_in_vain(client, lanes)
    lease = answer(lanes)
    if state == "parked":
        lanes.park(lease, wait_ms=3_000)
    elif state == "dropped":  # its session is paused
        lanes.drop(lease)
    pass_by(client, lanes)
    assert client.get(keys.UNCLAIMED) is None


def test_only_the_oldest_unclaimed_wakeup_is_recorded(client: Any, lanes: Lanes) -> None:
    now_ms = redis_ms(client)
    woken_in_vain(client, lanes, "young", since_ms=now_ms - 1_000)
    woken_in_vain(client, lanes, "old", since_ms=now_ms - 9_000)
    pass_by(client, lanes, "young")
    assert client.get(keys.UNCLAIMED) == str(now_ms - 1_000)
    pass_by(client, lanes, "old")
    assert client.get(keys.UNCLAIMED) == str(now_ms - 9_000)
    client.pexpire(keys.UNCLAIMED, 500)
    pass_by(client, lanes, "young")
    assert client.pttl(keys.UNCLAIMED) <= 500, "prolonged by another"
    pass_by(client, lanes, "old")
    assert client.pttl(keys.UNCLAIMED) > 500


def test_a_clock_of_redis_that_was_set_back_makes_no_negative_age(client: Any) -> None:
    client.set(keys.UNCLAIMED, redis_ms(client) + 60_000)
    assert read_readiness(client).unclaimed_s == 0.0


def test_a_worker_whose_heart_stopped_is_not_looked_at(client: Any) -> None:
    client.zadd(keys.WORKERS, {"dead": 1})
    assert read_readiness(client) == Readiness((), 0.0)
