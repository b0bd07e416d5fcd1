"""Threads that are free get lanes without a wake-up."""

import threading
import time
from typing import Any

import pytest

from loom_worker.core.settings import LaneSettings
from loom_worker.core.stopping import Stopping
from loom_worker.lanes import keys
from loom_worker.lanes.lanes import Lanes, Lease
from loom_worker.lanes.slots import FreeSlots
from tests.support.until import until

LANE, OTHER = "a1", "b2"


@pytest.fixture
def lanes(valkey: Any) -> Lanes:
    return Lanes(valkey, LaneSettings())


def slots(lanes: Lanes, *, process: str = "w", most_waiting: int = 4, stopping: Stopping | None = None) -> FreeSlots:
    return FreeSlots(lanes, stopping or Stopping(1.0), process=process, most_waiting=most_waiting)


def wakeup(lane: str) -> str:
    """The part of a wake-up that a free thread reads."""
    return f"""{{"headers": {{"task": "loom.turn.run", "argsrepr": "('{lane}',)"}}}}"""


def test_a_lane_that_is_to_be_woken_goes_to_a_free_slot(lanes: Lanes) -> None:
    assert lanes.next("w-1", wait_s=60) is None
    assert not lanes.submit(LANE, [(1, "a")]), "no wake-up is needed"
    assert lanes.assigned("w-1", wait_s=1) == Lease(LANE, "w-1", 1)
    assert lanes.renew([Lease(LANE, "w-1", 1)]) == {Lease(LANE, "w-1", 1): "held"}


def test_a_free_slot_gets_one_lane(lanes: Lanes) -> None:
    lanes.next("w-1", wait_s=60)
    assert not lanes.submit(LANE, [(1, "a")])
    assert lanes.submit(OTHER, [(1, "b")])


def test_a_slot_that_waited_too_long_gets_none(lanes: Lanes, valkey: Any) -> None:
    lanes.next("w-1", wait_s=60)
    valkey.zadd(keys.FREE_SLOTS, {"w-1": 1})
    assert lanes.submit(LANE, [(1, "a")])


def test_a_slot_that_stops_waiting_has_what_it_was_given_just_before(lanes: Lanes) -> None:
    for slot in ("w-1", "w-2"):
        lanes.next(slot, wait_s=60)
    lanes.submit(LANE, [(1, "a")])
    given = [lanes.withdraw(slot) for slot in ("w-1", "w-2")]
    assert sorted(given, key=bool) == [None, Lease(LANE, given[1].token if given[1] else "w-1", 1)]
    assert lanes.submit(OTHER, [(1, "b")]), "both have stopped"


def test_the_process_with_most_free_slots_is_given_the_lane(lanes: Lanes) -> None:
    for slot in ("v-1", "w-1", "w-2"):
        lanes.next(slot, wait_s=60)
    lanes.submit(LANE, [(1, "a")])
    assert lanes.withdraw("v-1") is None
    assert lanes.withdraw("w-2") == Lease(LANE, "w-2", 1), "of its slots the one that was busy last"


def test_processes_with_as_many_free_slots_take_turns(lanes: Lanes) -> None:
    for slot in ("v-1", "w-1"):
        lanes.next(slot, wait_s=60)
    lanes.submit(LANE, [(1, "a")])
    lease = lanes.withdraw("v-1")
    assert lease == Lease(LANE, "v-1", 1)
    assert lanes.advance(lease, 1, slot="v-2", wait_s=61) == (None, False)
    lanes.submit(LANE, [(2, "b")])
    assert lanes.withdraw("w-1") == Lease(LANE, "w-1", 2)


def test_a_free_slot_takes_the_wake_up_that_has_waited_longest(lanes: Lanes, valkey: Any) -> None:
    for lane in (LANE, OTHER):
        lanes.submit(lane, [(1, f"of {lane}")])
        valkey.lpush(keys.WAKEUPS, wakeup(lane))
    assert lanes.next("w-1", wait_s=60) == Lease(LANE, "w-1", 1)
    assert valkey.lrange(keys.WAKEUPS, 0, -1) == [wakeup(OTHER)]


def test_a_wake_up_of_a_lane_that_runs_is_dropped(lanes: Lanes, valkey: Any) -> None:
    lanes.submit(LANE, [(1, "a")])
    lanes.take(LANE, "v-1")
    valkey.lpush(keys.WAKEUPS, wakeup(LANE))
    assert lanes.next("w-1", wait_s=0) is None
    assert not valkey.exists(keys.WAKEUPS, keys.FREE_SLOTS)


def test_other_messages_of_the_queue_are_left_to_celery(lanes: Lanes, valkey: Any) -> None:
    other = wakeup(LANE).replace("turn.run", "turn.wake")
    valkey.lpush(keys.WAKEUPS, other)
    assert lanes.next("w-1", wait_s=60) is None
    assert valkey.lrange(keys.WAKEUPS, 0, -1) == [other]


def test_a_slot_whose_turn_has_ended_goes_on_with_the_lane_that_waited_longest(lanes: Lanes, valkey: Any) -> None:
    lanes.submit(LANE, [(1, "a"), (2, "b")])
    lease = lanes.take(LANE, "w-1")
    assert lease is not None
    lanes.submit(OTHER, [(1, "c")])
    valkey.lpush(keys.WAKEUPS, wakeup(OTHER))
    assert lanes.advance(lease, 1, slot="w-2", wait_s=60) == (Lease(OTHER, "w-2", 1), True)
    assert valkey.hget(keys.lease(LANE), "state") == "kicked"


def test_a_slot_that_takes_its_own_lane_s_wake_up_has_it_by_its_new_token(lanes: Lanes, valkey: Any) -> None:
    """A wake-up that was sent twice: the lane has ended, and is taken once more to find that out."""
    lanes.submit(LANE, [(1, "a")])
    lease = lanes.take(LANE, "w-1")
    assert lease is not None
    valkey.lpush(keys.WAKEUPS, wakeup(LANE))
    assert lanes.advance(lease, 1, slot="w-2") == (Lease(LANE, "w-2", 0), False)


def test_a_slot_whose_lane_was_lost_goes_on_with_another(lanes: Lanes, valkey: Any) -> None:
    lanes.submit(OTHER, [(1, "c")])
    valkey.lpush(keys.WAKEUPS, wakeup(OTHER))
    assert lanes.advance(Lease(LANE, "w-1", 1), 1, slot="w-2") == (Lease(OTHER, "w-2", 1), False)


def test_what_agents_are_made_of_comes_with_the_lane(lanes: Lanes, valkey: Any) -> None:
    valkey.set(keys.CONTENT_VERSION, "digest process 7")
    lanes.next("w-1", wait_s=60)
    lanes.submit(LANE, [(1, "a")])
    given = lanes.assigned("w-1", wait_s=1)
    assert given is not None
    assert given.content == "digest process 7"


def test_a_thread_that_waits_is_given_a_lane_at_once(lanes: Lanes) -> None:
    of_process, found = slots(lanes), list[Lease | None]()
    thread = threading.Thread(target=lambda: found.append(of_process.next()))
    thread.start()
    until(lambda: of_process.waiting == 1, 5, "the thread waits")
    assert not lanes.submit(LANE, [(1, "a")])
    thread.join(timeout=10)
    assert [lease.lane for lease in found if lease] == [LANE]
    assert of_process.waiting == 0


def test_only_so_many_threads_wait(lanes: Lanes, valkey: Any) -> None:
    assert slots(lanes, most_waiting=0).next() is None
    assert not valkey.exists(keys.FREE_SLOTS)


def test_a_process_that_stops_waits_for_nothing(lanes: Lanes, valkey: Any) -> None:
    stopping = Stopping(1.0)
    of_process, found = slots(lanes, stopping=stopping), list[Lease | None]()
    thread = threading.Thread(target=lambda: found.append(of_process.next()))
    thread.start()
    until(lambda: of_process.waiting == 1, 5, "the thread waits")
    began_s = time.monotonic()
    stopping.ask()
    thread.join(timeout=30)
    assert found == [None]
    assert not valkey.exists(keys.FREE_SLOTS)
    assert of_process.offer() == ("", 0.0)
    assert time.monotonic() - began_s < 30
