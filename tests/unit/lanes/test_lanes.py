from pathlib import Path
from typing import Any

import pytest
import redis

from loom_worker.core.errors import Unavailable
from loom_worker.core.redis_client import client as redis_client
from loom_worker.core.settings import LaneSettings
from loom_worker.lanes import keys
from loom_worker.lanes.lanes import Lanes, Lease
from tests.support.at_once import at_once

LANE = "a1"


def queue(client: Any) -> list[str]:
    return [str(turn) for turn in client.zrange(keys.lane(LANE), 0, -1)]


def state(client: Any) -> str | None:
    found: str | None = client.hget(keys.lease(LANE), "state")
    return found


def remaining_ms(client: Any) -> float:
    """Until the sweep looks at the lane."""
    seconds, micros = client.time()
    return float(client.zscore(keys.LEASES, LANE)) - (seconds * 1000 + micros / 1000)


def expire(client: Any) -> None:
    """Let the lane's deadline pass, as time would."""
    assert client.zadd(keys.LEASES, {LANE: 1}, xx=True, ch=True) == 1


def taken(lanes: Lanes, token: str = "t1") -> Lease:
    lease = lanes.take(LANE, token)
    assert lease is not None
    return lease


def test_turns_stand_in_the_order_of_their_seq_however_they_arrive(lanes: Lanes, client: Any) -> None:
    for seq in (3, 10, 1, 2):
        lanes.submit(LANE, [(seq, f"turn{seq}")])
    assert queue(client) == ["turn1", "turn2", "turn3", "turn10"]


def test_an_idle_lane_is_rung_once_however_many_turns_come(lanes: Lanes) -> None:
    assert [lanes.submit(LANE, [(seq, f"turn{seq}")]) for seq in (1, 2, 3)] == [True, False, False]


def test_a_turn_submitted_twice_is_there_once_and_keeps_its_place(lanes: Lanes, client: Any) -> None:
    lanes.submit(LANE, [(1, "a"), (2, "b")])
    assert not lanes.submit(LANE, [(9, "a"), (2, "b")])
    assert client.zrange(keys.lane(LANE), 0, -1, withscores=True) == [("a", 1.0), ("b", 2.0)]


def test_submitting_nothing_to_an_empty_lane_rings_nobody_and_leaves_nothing(lanes: Lanes, client: Any) -> None:
    assert not lanes.submit(LANE, [])
    assert set(client.keys("*")) <= {keys.PULSE}


def test_a_lane_that_runs_is_not_taken_by_another(lanes: Lanes) -> None:
    lanes.submit(LANE, [(1, "a")])
    assert taken(lanes) == Lease(LANE, "t1", 1)
    assert lanes.take(LANE, "t2") is None


def test_a_turn_that_comes_while_the_lane_runs_rings_nobody(lanes: Lanes) -> None:
    lanes.submit(LANE, [(1, "a")])
    taken(lanes)
    assert not lanes.submit(LANE, [(2, "b")])


def test_a_parked_lane_is_not_taken_before_its_time(lanes: Lanes) -> None:
    lanes.submit(LANE, [(1, "a")])
    assert not lanes.park(taken(lanes), wait_ms=60_000)
    assert lanes.take(LANE, "t2") is None


def test_a_lane_whose_deadline_has_passed_is_another_s(lanes: Lanes, client: Any) -> None:
    lanes.submit(LANE, [(1, "a")])
    old = taken(lanes)
    expire(client)
    new = taken(lanes, "t2")
    assert lanes.renew([old, new]) == {old: "lost", new: "held"}
    assert not lanes.complete(old, 1)
    assert not lanes.release(old)
    assert not lanes.park(old, wait_ms=1)
    lanes.drop(old)
    assert (queue(client), client.hget(keys.lease(LANE), "token")) == (["a"], "t2")


def test_taking_an_idle_lane_gives_seq_0_and_completing_it_leaves_nothing(lanes: Lanes, client: Any) -> None:
    lease = taken(lanes)
    assert lease.last_seq == 0
    assert not lanes.complete(lease, lease.last_seq)
    assert set(client.keys("*")) <= {keys.PULSE}


def test_renewing_moves_the_deadline(lanes: Lanes, client: Any) -> None:
    lease = taken(lanes)
    expire(client)
    assert lanes.renew([lease]) == {lease: "held"}
    assert 2_000 < remaining_ms(client) <= 3_000


def test_renewing_nothing_asks_nothing(lanes: Lanes) -> None:
    assert lanes.renew([]) == {}


def test_a_lease_that_the_sweep_gave_away_is_not_renewed(lanes: Lanes, client: Any) -> None:
    lease = taken(lanes)
    expire(client)
    assert lanes.expired(limit=10) == [LANE]
    assert lanes.renew([lease]) == {lease: "lost"}


def test_a_lease_that_redis_forgot_is_written_again_by_its_owner(lanes: Lanes, client: Any) -> None:
    lanes.submit(LANE, [(1, "a")])
    lease = taken(lanes)
    client.flushall()
    assert lanes.renew([lease]) == {lease: "held"}
    assert lanes.take(LANE, "t2") is None
    assert remaining_ms(client) > 0


def test_renewing_a_parked_lane_does_not_move_its_deadline(lanes: Lanes, client: Any) -> None:
    lease = taken(lanes)
    lanes.park(lease, wait_ms=60_000)
    assert lanes.renew([lease]) == {lease: "held"}
    assert remaining_ms(client) > 50_000


def test_an_alert_reaches_the_owner_with_its_next_renewal_alone(lanes: Lanes) -> None:
    lease = taken(lanes)
    assert lanes.alert(LANE) is False
    assert [lanes.renew([lease])[lease] for _ in range(2)] == ["alerted", "held"]


def test_an_alert_rings_a_parked_lane_and_an_idle_one_but_not_one_that_is_rung_already(lanes: Lanes) -> None:
    assert [lanes.alert(LANE), lanes.alert(LANE)] == [True, False]
    lanes.park(taken(lanes), wait_ms=60_000)
    assert [lanes.alert(LANE), lanes.alert(LANE)] == [True, False]


def test_a_lane_that_was_alerted_does_not_park(lanes: Lanes) -> None:
    lease = taken(lanes)
    lanes.alert(LANE)
    assert lanes.park(lease, wait_ms=60_000) is True


def test_who_takes_a_lane_hears_no_older_alert(lanes: Lanes, client: Any) -> None:
    taken(lanes)
    lanes.alert(LANE)
    expire(client)
    lease = lanes.take(LANE, "t2")
    assert lease is not None
    assert lanes.renew([lease]) == {lease: "held"}


def test_a_parked_lane_is_woken_once(lanes: Lanes) -> None:
    lanes.park(taken(lanes), wait_ms=60_000)
    assert [lanes.wake(LANE, "x"), lanes.wake(LANE, "x"), lanes.wake(LANE, "y")] == [True, False, False]
    assert lanes.take(LANE, "t2") is not None


def test_a_wake_that_comes_before_the_parking_is_not_lost(lanes: Lanes, client: Any) -> None:
    lease = taken(lanes)
    assert not lanes.wake(LANE, "x")
    assert lanes.park(lease, wait_ms=60_000)
    assert state(client) == "kicked"


def test_a_wake_counts_for_one_parking_only(lanes: Lanes) -> None:
    lease = taken(lanes)
    lanes.wake(LANE, "x")
    lanes.park(lease, wait_ms=60_000)
    assert not lanes.park(taken(lanes, "t2"), wait_ms=60_000)


def test_a_wake_told_to_an_owner_that_died_is_not_told_to_the_next(lanes: Lanes, client: Any) -> None:
    taken(lanes)
    lanes.wake(LANE, "x")
    expire(client)
    assert not lanes.park(taken(lanes, "t2"), wait_ms=60_000)


def test_the_second_signal_of_one_fan_out_does_not_wake_the_turn_again(lanes: Lanes) -> None:
    lanes.park(taken(lanes), wait_ms=60_000)
    assert lanes.wake(LANE, "turn:1")
    lease = taken(lanes, "t2")
    assert not lanes.wake(LANE, "turn:1")
    assert not lanes.park(lease, wait_ms=60_000)


def test_the_next_fan_out_wakes_the_turn_though_the_last_one_did(lanes: Lanes) -> None:
    lanes.park(taken(lanes), wait_ms=60_000)
    lanes.wake(LANE, "turn:1")
    lanes.park(taken(lanes, "t2"), wait_ms=60_000)
    assert lanes.wake(LANE, "turn:3")


def test_a_wake_for_a_lane_that_redis_forgot_rings(lanes: Lanes, client: Any) -> None:
    lanes.park(taken(lanes), wait_ms=60_000)
    client.flushall()
    assert lanes.wake(LANE, "x")
    assert remaining_ms(client) > 0


def test_completing_takes_all_turns_up_to_it_off_and_leaves_those_behind(lanes: Lanes, client: Any) -> None:
    lanes.submit(LANE, [(1, "a"), (2, "b"), (3, "c")])
    assert lanes.complete(taken(lanes), 2)
    assert (queue(client), state(client)) == (["c"], "kicked")


def test_completing_the_last_turn_leaves_no_key(lanes: Lanes, client: Any) -> None:
    lanes.submit(LANE, [(1, "a")])
    assert not lanes.complete(taken(lanes), 1)
    assert set(client.keys("*")) <= {keys.PULSE}


def test_a_turn_that_comes_while_the_last_one_runs_is_rung_for_at_its_end(lanes: Lanes) -> None:
    lanes.submit(LANE, [(1, "a")])
    lease = taken(lanes)
    lanes.submit(LANE, [(2, "b")])
    assert lanes.complete(lease, 1)


def test_a_released_lane_keeps_its_turn_and_can_be_taken_at_once(lanes: Lanes, client: Any) -> None:
    lanes.submit(LANE, [(1, "a")])
    assert lanes.release(taken(lanes))
    assert queue(client) == ["a"]
    assert taken(lanes, "t2").last_seq == 1


def test_a_release_says_when_the_sweep_shall_ring(lanes: Lanes, client: Any) -> None:
    lanes.submit(LANE, [(1, "a")])
    lanes.release(taken(lanes), wait_ms=60_000)
    assert remaining_ms(client) > 50_000


def test_a_dropped_lane_keeps_its_turns_and_is_rung_by_the_next_submit(lanes: Lanes, client: Any) -> None:
    lanes.submit(LANE, [(1, "a")])
    lanes.drop(taken(lanes))
    assert lanes.expired(limit=10) == []
    assert lanes.unleased([LANE]) == [LANE]
    assert lanes.submit(LANE, [(2, "b")])
    assert queue(client) == ["a", "b"]


@pytest.mark.parametrize("what", ["kicked", "running", "parked"])
def test_the_sweep_rings_a_lane_that_is_late_and_not_one_in_time(lanes: Lanes, client: Any, what: str) -> None:
    lanes.submit(LANE, [(1, "a")])
    if what != "kicked":
        lease = taken(lanes)
        if what == "parked":
            lanes.park(lease, wait_ms=60_000)
    assert state(client) == what
    assert lanes.expired(limit=10) == []
    expire(client)
    assert lanes.expired(limit=10) == [LANE]
    assert lanes.expired(limit=10) == []
    assert lanes.take(LANE, "t2") is not None


def test_a_bell_that_nobody_answers_is_rung_ever_more_slowly_but_never_given_up(lanes: Lanes, client: Any) -> None:
    lanes.submit(LANE, [(1, "a")])
    pauses_s = []
    for number in range(20):
        if number == 10:
            client.hset(keys.lease(LANE), "kicks", 1019)  # 2 ** 1024 is no number any more
        expire(client)
        assert lanes.expired(limit=1) == [LANE]
        pauses_s.append(round(remaining_ms(client) / 1000))
    assert (pauses_s[:4], set(pauses_s[3:])) == ([2, 4, 8, 8], {8})


def test_answering_the_bell_makes_the_next_pause_short_again(lanes: Lanes, client: Any) -> None:
    lanes.submit(LANE, [(1, "a")])
    for _ in range(3):
        expire(client)
        lanes.expired(limit=1)
    taken(lanes)
    expire(client)
    lanes.expired(limit=1)
    assert remaining_ms(client) <= 2_000


def test_an_unanswered_bell_of_an_empty_lane_is_forgotten(lanes: Lanes, client: Any) -> None:
    lanes.wake(LANE, "x")
    expire(client)
    assert lanes.expired(limit=10) == []
    assert set(client.keys("*")) <= {keys.PULSE}


def test_no_more_late_lanes_are_rung_than_asked_for_and_the_rest_next_time(lanes: Lanes, client: Any) -> None:
    for number in range(5):
        lanes.submit(f"lane{number}", [(1, f"turn{number}")])
        client.zadd(keys.LEASES, {f"lane{number}": 1 + number})
    first, second = lanes.expired(limit=3), lanes.expired(limit=3)
    assert (first, second) == (["lane0", "lane1", "lane2"], ["lane3", "lane4"])


def test_unleased_names_the_lanes_that_redis_knows_nothing_of(lanes: Lanes) -> None:
    lanes.submit(LANE, [(1, "a")])
    assert lanes.unleased([LANE, "other"]) == ["other"]
    assert lanes.unleased([]) == []


def test_a_forgotten_lane_leaves_no_key_and_its_owner_loses_nothing_of_another(lanes: Lanes, client: Any) -> None:
    lanes.submit(LANE, [(1, "a"), (2, "b")])
    lease = taken(lanes)
    lanes.forget(LANE)
    assert set(client.keys("*")) <= {keys.PULSE}
    assert not lanes.complete(lease, 1)
    assert set(client.keys("*")) <= {keys.PULSE}


def test_lanes_do_not_touch_each_other(lanes: Lanes, client: Any) -> None:
    for name in (LANE, "other"):
        lanes.submit(name, [(1, f"{name}-turn")])
    lanes.complete(taken(lanes), 1)
    assert client.zrange(keys.lane("other"), 0, -1) == ["other-turn"]
    assert lanes.unleased([LANE, "other"]) == [LANE]


def test_of_many_workers_that_hear_the_bell_one_gets_the_lane(valkey: redis.Redis) -> None:
    lanes = Lanes(valkey, LaneSettings())
    lanes.submit(LANE, [(1, "a")])
    got = at_once(lambda number: lanes.take(LANE, f"t{number}"), range(16))
    assert len([lease for lease in got if lease is not None]) == 1


def test_a_redis_that_is_gone_is_told_in_our_own_words(tmp_path: Path) -> None:
    lanes = Lanes(redis_client(f"unix://{tmp_path}/none.sock", connections=2), LaneSettings())
    lease = Lease(LANE, "t", 0)
    asks = (
        lambda: lanes.submit(LANE, [(1, "a")]),
        lambda: lanes.renew([lease]),
        lambda: lanes.expired(limit=1),
        lambda: lanes.unleased([LANE]),
        lambda: lanes.forget(LANE),
    )
    for ask in asks:
        with pytest.raises(Unavailable):
            ask()


def test_a_lane_with_more_turns_stays_with_its_owner_while_no_other_doorbell_waits(lanes: Lanes, client: Any) -> None:
    lanes.submit(LANE, [(1, "a"), (2, "b")])
    lease = taken(lanes)
    lanes.submit(LANE, [(3, "c")])
    lanes.alert(LANE)
    expire(client)
    kept, must_wake = lanes.advance(lease, 1, slot="w-1")
    assert (kept, must_wake) == (Lease(LANE, lease.token, last_seq=3), False)
    assert remaining_ms(client) > 2_000
    assert kept is not None
    assert lanes.renew([kept]) == {kept: "held"}
    assert client.zrange(keys.lane(LANE), 0, -1) == ["b", "c"]


def test_a_lane_with_more_turns_is_rung_behind_the_doorbells_that_wait(lanes: Lanes, client: Any) -> None:
    lanes.submit(LANE, [(1, "a"), (2, "b")])
    client.rpush(keys.WAKEUPS, "of another lane")
    assert lanes.advance(taken(lanes), 1, slot="w-1") == (None, True)
    assert client.hget(keys.lease(LANE), "state") == "kicked"


def test_an_empty_lane_is_given_back_and_another_s_is_left_as_it_is(lanes: Lanes, client: Any) -> None:
    lanes.submit(LANE, [(1, "a")])
    lease = taken(lanes)
    assert lanes.advance(lease, 1) == (None, False)
    assert set(client.keys("*")) <= {keys.PULSE}
    lanes.submit(LANE, [(2, "b")])
    taken(lanes, "t2")
    assert lanes.advance(lease, 2) == (None, False)
    assert client.zrange(keys.lane(LANE), 0, -1) == ["b"]
