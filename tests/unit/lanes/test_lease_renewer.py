import os
import socket
import threading
import time
from collections.abc import Container, Iterable
from pathlib import Path
from typing import Any

import pytest
import redis

from loom_worker.core.redis_client import client as redis_client
from loom_worker.core.settings import LaneSettings
from loom_worker.core.values.ids import now_ms
from loom_worker.lanes import keys
from loom_worker.lanes.lanes import Lanes, Lease, Renewal
from loom_worker.lanes.lease_renewer import HeldLease, LeaseRenewer, LiveWorkers, memory_age_ms
from loom_worker.lanes.readiness import read_readiness
from tests.support.busy_threads import BusyThreads
from tests.support.until import until

LANE = "a1"
SETTINGS = LaneSettings()


@pytest.fixture
def renewer(client: Any, lanes: Lanes) -> LeaseRenewer:
    return LeaseRenewer(client, lanes, "w1", SETTINGS)


def taken(lanes: Lanes, lane: str = LANE, token: str = "t1") -> Lease:
    lease = lanes.take(lane, token)
    assert lease is not None
    return lease


def test_a_beat_prolongs_every_lease_of_the_process(renewer: LeaseRenewer, lanes: Lanes, client: Any) -> None:
    holds = [renewer.hold(taken(lanes, lane)) for lane in ("a", "b")]
    client.zadd(keys.LEASES, {"a": 1, "b": 1})
    renewer.renew()
    assert lanes.expired(limit=10) == []
    assert not any(hold.lost.is_set() for hold in holds)


def test_a_lease_that_another_has_is_told_as_lost_and_no_longer_asked_for(
    renewer: LeaseRenewer, lanes: Lanes, client: Any
) -> None:
    hold = renewer.hold(taken(lanes))
    client.zadd(keys.LEASES, {LANE: 1})
    other = taken(lanes, token="t2")
    renewer.renew()
    assert hold.lost.is_set()
    client.flushall()
    renewer.renew()
    assert lanes.renew([other]) == {other: "held"}


def grown_late(hold: HeldLease) -> None:
    hold.renewed_s = hold.confirmed_s = time.monotonic() - SETTINGS.lease_s - 0.001


def test_a_lease_that_was_renewed_too_late_is_in_doubt_until_redis_says_that_it_is_still_ours(
    renewer: LeaseRenewer, lanes: Lanes, client: Any
) -> None:
    hold = renewer.hold(taken(lanes))
    grown_late(hold)
    assert hold.is_in_doubt(SETTINGS.lease_s)
    client.zadd(keys.LEASES, {LANE: 1})
    renewer.renew()
    assert not hold.is_in_doubt(SETTINGS.lease_s)
    assert not hold.lost.is_set()
    assert lanes.expired(limit=10) == []


def test_what_redis_forgot_is_written_again_late_if_the_database_says_that_the_turn_is_ours(
    renewer: LeaseRenewer, lanes: Lanes, client: Any
) -> None:
    hold = renewer.hold(taken(lanes))
    grown_late(hold)
    hold.confirmed_s = time.monotonic()
    client.flushall()
    renewer.renew()
    assert lanes.take(LANE, "t2") is None


def stood_still(client: Any) -> None:
    """Let Redis have stood still, as far as it can tell itself."""
    client.set(keys.PULSE, int(client.get(keys.PULSE)) - 10_000)


def test_after_redis_stood_still_owners_have_the_time_of_a_lease_to_renew_theirs(
    renewer: LeaseRenewer, lanes: Lanes, client: Any
) -> None:
    renewer.renew()
    lease = taken(lanes)
    client.zadd(keys.LEASES, {LANE: 1})
    stood_still(client)
    assert lanes.expired(limit=10) == []
    assert LiveWorkers(client).alive() == {"w1"}
    client.pexpire(keys.GRACE, int(SETTINGS.lease_s * 1000))
    assert lanes.expired(limit=10) == [LANE]
    assert lanes.renew([lease]) == {lease: "lost"}


def test_a_beat_that_comes_before_the_sweep_notices_that_redis_stood_still(
    renewer: LeaseRenewer, lanes: Lanes, client: Any
) -> None:
    renewer.renew()
    taken(lanes)
    client.zadd(keys.LEASES, {LANE: 1})
    stood_still(client)
    renewer.renew()
    client.delete(keys.worker("w1"))
    assert lanes.expired(limit=10) == []
    assert LiveWorkers(client).alive() == {"w1"}


def test_gaps_that_follow_each_other_do_not_spare_the_dead_for_ever(
    renewer: LeaseRenewer, lanes: Lanes, client: Any
) -> None:
    renewer.renew()
    taken(lanes)
    client.zadd(keys.LEASES, {LANE: 1})
    stood_still(client)
    assert lanes.expired(limit=10) == []
    client.pexpire(keys.GRACE, int(SETTINGS.lease_s * 1000))
    stood_still(client)
    assert lanes.expired(limit=10) == [LANE]


def test_a_process_that_slept_does_not_take_back_what_redis_forgot(
    renewer: LeaseRenewer, lanes: Lanes, client: Any
) -> None:
    hold = renewer.hold(taken(lanes))
    grown_late(hold)
    client.flushall()
    renewer.renew()
    assert not hold.lost.is_set()
    assert lanes.unleased([LANE]) == [LANE]


def test_what_redis_forgot_is_written_again_by_the_next_beat(renewer: LeaseRenewer, lanes: Lanes, client: Any) -> None:
    hold = renewer.hold(taken(lanes))
    client.flushall()
    renewer.renew()
    assert not hold.lost.is_set()
    assert lanes.take(LANE, "t2") is None


def test_a_lease_that_was_let_go_is_not_renewed(renewer: LeaseRenewer, lanes: Lanes, client: Any) -> None:
    renewer.let_go(renewer.hold(taken(lanes)))
    client.zadd(keys.LEASES, {LANE: 1})
    renewer.renew()
    assert lanes.expired(limit=10) == [LANE]


def test_letting_go_twice_or_of_what_was_lost_does_nothing(renewer: LeaseRenewer, lanes: Lanes) -> None:
    hold = renewer.hold(taken(lanes))
    renewer.let_go(hold)
    renewer.let_go(hold)
    assert not hold.lost.is_set()


class SlowRenewals(Lanes):
    """Lanes whose renewal is under way until a test lets it go on."""

    def __init__(self, client: Any) -> None:
        super().__init__(client, SETTINGS)
        self.begun, self.go_on = threading.Event(), threading.Event()

    def renew(self, leases: Iterable[Lease], *, late: Container[Lease] = ()) -> dict[Lease, Renewal]:
        self.begun.set()
        assert self.go_on.wait(60)
        return super().renew(leases, late=late)


def test_a_beat_under_way_does_not_write_the_lease_of_a_lane_that_became_idle(client: Any) -> None:
    lanes = SlowRenewals(client)
    renewer = LeaseRenewer(client, lanes, "w1", SETTINGS)
    hold = renewer.hold(taken(lanes))
    beat = threading.Thread(target=renewer.renew)

    def end() -> None:
        renewer.let_go(hold)
        lanes.complete(hold.lease, 1)

    ending = threading.Thread(target=end)
    beat.start()
    assert lanes.begun.wait(60)
    ending.start()
    ending.join(0.1)  # without the lock it is through by now, and the beat comes after it
    lanes.go_on.set()
    for thread in (beat, ending):
        thread.join(60)
    assert lanes.submit(LANE, [(2, "b")]), "the lane looks as if it ran"


def test_a_beat_says_that_the_worker_is_alive(renewer: LeaseRenewer, client: Any) -> None:
    assert LiveWorkers(client).alive() == frozenset()
    renewer.renew()
    assert LiveWorkers(client).alive() == {"w1"}
    client.delete(keys.worker("w1"))  # as Redis does when no beat has come for a lease's time
    assert LiveWorkers(client).alive() == frozenset()


@pytest.mark.parametrize("hours_off", [-5, 5])
def test_a_worker_with_a_wrong_clock_lives_and_dies_like_any_other(
    renewer: LeaseRenewer, client: Any, hours_off: int
) -> None:
    renewer.renew()
    client.zincrby(keys.WORKERS, hours_off * 3_600_000, "w1")
    assert LiveWorkers(client).alive() == {"w1"}
    client.delete(keys.worker("w1"))
    assert LiveWorkers(client).alive() == frozenset()


def test_workers_unheard_of_for_a_day_are_forgotten(client: Any) -> None:
    client.zadd(keys.WORKERS, {"dead": 1_000, "old": now_ms() - 80_000_000})
    assert LiveWorkers(client).alive() == frozenset()
    assert client.zrange(keys.WORKERS, 0, -1) == ["old"]


def test_the_age_of_redis_memory_counts_from_the_first_beat_after_a_loss(renewer: LeaseRenewer, client: Any) -> None:
    assert memory_age_ms(client) == 0
    renewer.renew()
    client.pexpire(keys.MEMORY_SINCE, client.pttl(keys.MEMORY_SINCE) - 10_000)
    renewer.renew()
    assert 10_000 <= memory_age_ms(client) < 15_000
    client.flushall()
    renewer.renew()
    assert memory_age_ms(client) < 5_000


def test_a_started_keeper_beats_by_itself_and_is_no_longer_alive_once_stopped(valkey: redis.Redis) -> None:
    settings = LaneSettings(renew_s=0.01)
    renewer = LeaseRenewer(valkey, Lanes(valkey, settings), "w1", settings)
    renewer.start()
    renewer.start()
    until(lambda: LiveWorkers(valkey).alive(), 5, "a beat")
    assert [thread.name for thread in threading.enumerate()].count("loom-lease-renewer") == 1
    renewer.stop()
    assert LiveWorkers(valkey).alive() == frozenset()
    assert "loom-lease-renewer" not in [thread.name for thread in threading.enumerate()]


def test_a_worker_counts_as_alive_before_it_takes_its_first_task(valkey: redis.Redis) -> None:
    settings = LaneSettings(lease_s=180, renew_s=60)
    renewer = LeaseRenewer(valkey, Lanes(valkey, settings), "w1", settings)
    renewer.start()
    assert LiveWorkers(valkey).alive() == {"w1"}
    renewer.stop()


def test_a_keeper_without_redis_lives_on_and_its_leases_are_in_doubt(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = LaneSettings(lease_s=0.05, renew_s=0.01)
    client = redis_client(f"unix://{tmp_path}/none.sock", connections=2)
    renewer = LeaseRenewer(client, Lanes(client, settings), "w1", settings)
    hold = renewer.hold(Lease(LANE, "t1", 1))
    renewer.start()
    until(lambda: hold.is_in_doubt(settings.lease_s) and caplog.records, 5, "Redis was asked in vain")
    assert not hold.lost.is_set()
    assert "loom-lease-renewer" in [thread.name for thread in threading.enumerate()]
    renewer.stop()
    assert "Redis did not answer the lease renewer" in caplog.text


def test_a_worker_of_tools_alone_is_alive_but_takes_no_turns(client: Any, lanes: Lanes) -> None:
    threads = BusyThreads(4, lambda: 3)
    LeaseRenewer(client, lanes, "w-turn", SETTINGS, threads=threads).renew()
    LeaseRenewer(client, lanes, "w-tool", SETTINGS).renew()
    assert LiveWorkers(client).alive() == {"w-turn", "w-tool"}
    found = {worker.name: (worker.threads, worker.busy) for worker in read_readiness(client).workers}
    assert found == {"w-turn": (4, 3), "w-tool": (0, 0)}


def test_what_a_worker_says_of_itself_is_there_for_as_long_as_its_heart_beats(
    renewer: LeaseRenewer, client: Any
) -> None:
    renewer.renew()
    (worker,) = read_readiness(client).workers
    assert (worker.host, worker.pids) == (socket.gethostname(), {os.getpid(), os.getppid()})
    assert 0 < client.pttl(keys.worker("w1")) <= SETTINGS.lease_s * 1000
    renewer.stop()
    assert read_readiness(client).workers == ()


def test_taking_a_lane_ends_a_workers_idleness(client: Any, lanes: Lanes) -> None:
    renewer = LeaseRenewer(client, lanes, "w1", SETTINGS, threads=BusyThreads(2, lambda: 1))

    def idle_s() -> float:
        renewer.renew()
        return read_readiness(client).workers[0].idle_s

    grown_s = until(lambda: (idle := idle_s()) > 0.02 and idle, 5, "the worker is idle")
    renewer.hold(taken(lanes))
    assert idle_s() < grown_s


def test_a_heartbeat_costs_one_round_trip_and_the_leases_another(valkey: redis.Redis) -> None:
    lanes = Lanes(valkey, SETTINGS)
    renewer = LeaseRenewer(valkey, lanes, "w1", SETTINGS)
    renewer.renew()
    before: Any = valkey.info("stats")
    renewer.renew()
    after: Any = valkey.info("stats")
    assert after["total_reads_processed"] - before["total_reads_processed"] == 2  # the beat, and this question


def test_an_alert_is_heard_with_the_next_beat_and_once(renewer: LeaseRenewer, lanes: Lanes) -> None:
    hold = renewer.hold(taken(lanes))
    assert not lanes.alert(LANE)
    assert not hold.alerted.is_set()
    renewer.renew()
    assert hold.alerted.is_set()
    hold.alerted.clear()
    renewer.renew()
    assert not hold.alerted.is_set()
