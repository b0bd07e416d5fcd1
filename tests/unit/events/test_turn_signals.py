"""A turn that is accepted, and one that has ended: the lane and the log change in one step."""

from typing import Any

import pytest
import redis

from loom_worker.core import redis_client
from loom_worker.core.errors import Fenced, Unavailable
from loom_worker.core.settings import LaneSettings
from loom_worker.core.values.turns import Turn
from loom_worker.events.log import EventLog, Unsent
from loom_worker.events.turn_signals import TurnSignals
from loom_worker.lanes import keys
from loom_worker.lanes.lanes import Lanes, Lease

TURN = Turn("turn_1", "a1", "s1", "w", "default", 1, "queued", "hello", 0)
END = ("turn.completed", {"id": "turn_1"})


@pytest.fixture
def lanes(valkey: redis.Redis) -> Lanes:
    return Lanes(valkey, LaneSettings())


@pytest.fixture
def signals(valkey: redis.Redis, lanes: Lanes, events: EventLog) -> TurnSignals:
    return TurnSignals(valkey, lanes, events)


def kinds(events: EventLog) -> list[str]:
    return [event.type for event in events.read(TURN.id, after=0)]


def taken(signals: TurnSignals, lanes: Lanes) -> Lease:
    signals.accepted(TURN)
    lease = lanes.take("a1", "w-1")
    assert lease is not None
    return lease


def test_an_accepted_turn_is_on_its_lane_and_its_log_begins(
    signals: TurnSignals, events: EventLog, valkey: redis.Redis
) -> None:
    assert signals.accepted(TURN), "a wake-up must be sent"
    assert valkey.zrange(keys.lane("a1"), 0, -1) == ["turn_1"]
    assert kinds(events) == ["turn.queued"]
    assert not signals.accepted(TURN)
    assert kinds(events) == ["turn.queued"]


def test_a_log_that_its_worker_has_opened_before_is_left_alone(signals: TurnSignals, events: EventLog) -> None:
    events.append(TURN.id, [("turn.queued", {}), ("turn.started", {})], least=0)
    assert signals.accepted(TURN)
    assert kinds(events) == ["turn.queued", "turn.started"]


def test_a_turn_that_has_ended_leaves_its_lane_with_its_last_event(
    signals: TurnSignals, lanes: Lanes, events: EventLog, valkey: redis.Redis
) -> None:
    lease = taken(signals, lanes)
    unsent = Unsent(TURN.id, (("output_text.delta", {"text": "Hi"}), END), least=1, fence=1, written=("w1", 0))
    last, advanced = signals.ended(unsent, lease, 1, slot="w-2", wait_s=60)
    assert (last, advanced) == (3, (None, False))
    assert kinds(events) == ["turn.queued", "output_text.delta", "turn.completed"]
    assert not valkey.exists(keys.lease("a1"), keys.lane("a1"))
    assert valkey.zrange(keys.FREE_SLOTS, 0, -1) == ["w-2"]


def test_the_lane_goes_on_though_the_log_is_lost_or_another_s(
    signals: TurnSignals, lanes: Lanes, events: EventLog, valkey: redis.Redis
) -> None:
    lease = taken(signals, lanes)
    valkey.delete(f"loom:events:{TURN.id}")
    lost = Unsent(TURN.id, (END,), least=1, fence=1)
    last, _ = signals.ended(lost, lease, 1, slot="", wait_s=0)
    assert lost.appended(last) is None
    assert not valkey.exists(keys.lease("a1"))
    events.append(TURN.id, [("turn.queued", {})], least=0, fence=5)
    lease = taken(signals, lanes)
    last, _ = signals.ended(lost, lease, 1, slot="", wait_s=0)
    with pytest.raises(Fenced):
        lost.appended(last)
    assert not valkey.exists(keys.lease("a1"))


def test_thousands_of_events_that_were_not_written_yet_are_written_with_the_end(
    signals: TurnSignals, lanes: Lanes, events: EventLog
) -> None:
    lease = taken(signals, lanes)
    many = tuple(("context.built", {"n": n}) for n in range(9_000))
    last, _ = signals.ended(Unsent(TURN.id, (*many, END), least=1, fence=1), lease, 1, slot="", wait_s=0)
    assert last == 9_002
    assert events.last_id(TURN.id) == 9_002


def test_without_redis_nothing_is_told(tmp_path: Any, events: EventLog) -> None:
    nowhere = redis_client.client(f"unix://{tmp_path}/none", connections=2)
    signals = TurnSignals(nowhere, Lanes(nowhere, LaneSettings()), events)
    with pytest.raises(Unavailable):
        signals.accepted(TURN)
    with pytest.raises(Unavailable):
        signals.ended(Unsent(TURN.id, (END,), least=1), Lease("a1", "w-1", 1), 1, slot="", wait_s=0)
