import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import redis

from loom_worker.lanes import keys
from loom_worker.lanes.keeper import Keeper, alive_workers, memory_age_ms
from loom_worker.lanes.lanes import Lanes, Lease
from loom_worker.redis_client import client as redis_client
from loom_worker.settings import LaneSettings
from loom_worker.values.ids import now_ms
from tests.support.until import until

LANE = "a1"
SETTINGS = LaneSettings()


@pytest.fixture
def keeper(client: Any, lanes: Lanes) -> Keeper:
    return Keeper(client, lanes, "w1", SETTINGS)


def taken(lanes: Lanes, lane: str = LANE, token: str = "t1") -> Lease:
    lease = lanes.take(lane, token)
    assert lease is not None
    return lease


def test_a_beat_prolongs_every_lease_of_the_process(keeper: Keeper, lanes: Lanes, client: Any) -> None:
    holds = [keeper.hold(taken(lanes, lane)) for lane in ("a", "b")]
    client.zadd(keys.LEASES, {"a": 1, "b": 1})
    keeper.beat()
    assert lanes.expired(limit=10) == []
    assert not any(hold.lost.is_set() for hold in holds)


def test_a_lease_that_another_has_is_told_as_lost_and_no_longer_asked_for(
    keeper: Keeper, lanes: Lanes, client: Any
) -> None:
    hold = keeper.hold(taken(lanes))
    client.zadd(keys.LEASES, {LANE: 1})
    other = taken(lanes, token="t2")
    keeper.beat()
    assert hold.lost.is_set()
    client.flushall()
    keeper.beat()
    assert lanes.renew([other]) == {other: True}


def test_a_lease_that_is_old_by_our_own_clock_is_lost_without_asking(keeper: Keeper, lanes: Lanes, client: Any) -> None:
    hold = keeper.hold(taken(lanes))
    hold.renewed_s = time.monotonic() - SETTINGS.lease_s - 0.001
    client.zadd(keys.LEASES, {LANE: 1})
    keeper.beat()
    assert hold.lost.is_set()
    assert client.zscore(keys.LEASES, LANE) == 1


def test_a_process_that_slept_does_not_take_back_what_redis_forgot(keeper: Keeper, lanes: Lanes, client: Any) -> None:
    hold = keeper.hold(taken(lanes))
    hold.renewed_s = time.monotonic() - SETTINGS.lease_s - 0.001
    client.flushall()
    keeper.beat()
    assert lanes.unleased([LANE]) == [LANE]


def test_what_redis_forgot_is_written_again_by_the_next_beat(keeper: Keeper, lanes: Lanes, client: Any) -> None:
    hold = keeper.hold(taken(lanes))
    client.flushall()
    keeper.beat()
    assert not hold.lost.is_set()
    assert lanes.take(LANE, "t2") is None


def test_a_lease_that_was_let_go_is_not_renewed(keeper: Keeper, lanes: Lanes, client: Any) -> None:
    keeper.let_go(keeper.hold(taken(lanes)))
    client.zadd(keys.LEASES, {LANE: 1})
    keeper.beat()
    assert lanes.expired(limit=10) == [LANE]


def test_letting_go_twice_or_of_what_was_lost_does_nothing(keeper: Keeper, lanes: Lanes) -> None:
    hold = keeper.hold(taken(lanes))
    keeper.let_go(hold)
    keeper.let_go(hold)
    assert not hold.lost.is_set()


class SlowRenewals(Lanes):
    """Lanes whose renewal is under way until a test lets it go on."""

    def __init__(self, client: Any) -> None:
        super().__init__(client, SETTINGS)
        self.begun, self.go_on = threading.Event(), threading.Event()

    def renew(self, leases: Iterable[Lease]) -> dict[Lease, bool]:
        self.begun.set()
        assert self.go_on.wait(10)
        return super().renew(leases)


def test_a_beat_under_way_does_not_write_the_lease_of_a_lane_that_became_idle(client: Any) -> None:
    lanes = SlowRenewals(client)
    keeper = Keeper(client, lanes, "w1", SETTINGS)
    hold = keeper.hold(taken(lanes))
    beat = threading.Thread(target=keeper.beat)

    def end() -> None:
        keeper.let_go(hold)
        lanes.complete(hold.lease, 1)

    ending = threading.Thread(target=end)
    beat.start()
    assert lanes.begun.wait(10)
    ending.start()
    ending.join(0.1)  # without the lock it is through by now, and the beat comes after it
    lanes.go_on.set()
    for thread in (beat, ending):
        thread.join(10)
    assert lanes.submit(LANE, [(2, "b")]), "the lane looks as if it ran"


def test_a_beat_says_that_the_worker_is_alive(keeper: Keeper, client: Any) -> None:
    before_ms = now_ms()
    keeper.beat()
    assert alive_workers(client, since_ms=before_ms) == {"w1"}
    assert alive_workers(client, since_ms=now_ms() + 1) == frozenset()


def test_workers_unheard_of_for_a_day_are_forgotten(client: Any) -> None:
    client.zadd(keys.WORKERS, {"dead": 1_000, "old": 86_400_000, "young": 172_000_000})
    assert alive_workers(client, since_ms=172_000_000) == {"young"}
    assert client.zrange(keys.WORKERS, 0, -1) == ["old", "young"]


def test_the_age_of_redis_memory_counts_from_the_first_beat_after_a_loss(keeper: Keeper, client: Any) -> None:
    assert memory_age_ms(client, now_ms=now_ms()) == 0
    keeper.beat()
    born_ms = int(client.get(keys.BORN))
    client.set(keys.BORN, born_ms - 10_000)
    keeper.beat()
    assert memory_age_ms(client, now_ms=born_ms) == 10_000
    client.flushall()
    keeper.beat()
    assert memory_age_ms(client, now_ms=now_ms()) < 5_000


def test_a_clock_that_was_set_back_makes_the_memory_young_not_negative(keeper: Keeper, client: Any) -> None:
    keeper.beat()
    assert memory_age_ms(client, now_ms=0) == 0


def test_a_started_keeper_beats_by_itself_and_is_no_longer_alive_once_stopped(valkey: redis.Redis) -> None:
    settings = LaneSettings(renew_s=0.01)
    keeper = Keeper(valkey, Lanes(valkey, settings), "w1", settings)
    keeper.start()
    keeper.start()
    until(lambda: alive_workers(valkey, since_ms=0), 5, "a beat")
    assert [thread.name for thread in threading.enumerate()].count("loom-keeper") == 1
    keeper.stop()
    assert alive_workers(valkey, since_ms=0) == frozenset()
    assert "loom-keeper" not in [thread.name for thread in threading.enumerate()]


def test_a_keeper_without_redis_gives_its_leases_up_and_lives_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = LaneSettings(lease_s=0.05, renew_s=0.01)
    client = redis_client(f"unix://{tmp_path}/none.sock", connections=2)
    keeper = Keeper(client, Lanes(client, settings), "w1", settings)
    hold = keeper.hold(Lease(LANE, "t1", 1))
    keeper.start()
    assert hold.lost.wait(5)
    assert "loom-keeper" in [thread.name for thread in threading.enumerate()]
    keeper.stop()
    assert "Redis did not answer the keeper" in caplog.text


def test_a_worker_of_tools_alone_is_alive_but_takes_no_turns(client: Any, lanes: Lanes) -> None:
    for name, takes_turns in (("w-turn", True), ("w-tool", False)):
        Keeper(client, lanes, name, SETTINGS, takes_turns=takes_turns).beat()
    assert alive_workers(client, since_ms=0) == {"w-turn", "w-tool"}
    assert alive_workers(client, since_ms=0, among=keys.TURN_WORKERS) == {"w-turn"}
