"""The live logs, on a real Valkey."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

from loom_worker.core.errors import Fenced, Unavailable
from loom_worker.core.settings_tree import EventSettings
from loom_worker.core.values.notifications import Event
from loom_worker.events.log import RUNNING_TTL_S, EventLog
from tests.support.until import until


def test_many_writers_leave_no_gap_and_no_id_twice(events: EventLog) -> None:
    with ThreadPoolExecutor(8) as pool:
        batches = [[("a", {"n": n}), ("b", {"n": n})] for n in range(100)]
        lasts = list(pool.map(lambda batch: events.append("t", batch, least=0), batches))
    assert sorted(last for last in lasts if last) == list(range(2, 201, 2))
    found = events.read("t", after=0)
    assert [event.id for event in found] == list(range(1, 201))
    assert all(one.type == "a" and one.data == two.data for one, two in zip(found[::2], found[1::2], strict=True))


@pytest.mark.parametrize(
    ("there", "least", "expected"),
    [(0, 0, 1), (2, 0, 3), (2, 2, 3), (2, 3, None), (0, 1, None), (0, -1, 1), (2, -1, None)],
)
def test_nothing_is_added_to_a_log_that_is_shorter_than_it_should_be(
    events: EventLog, there: int, least: int, expected: int | None
) -> None:
    for n in range(there):
        events.append("t", [("old", {"n": n})], least=0)
    assert events.append("t", [("new", {})], least=least) == expected
    assert events.last_id("t") == (there if expected is None else expected)


def test_the_opening_is_written_once_and_only_into_an_empty_log(events: EventLog) -> None:
    for _ in range(2):
        events.append("t", [("turn.queued", {"seq": 1})], least=-1)
    assert events.read("t", after=0) == (Event(1, "turn.queued", {"seq": 1}),)


def test_what_an_owner_sends_twice_because_redis_was_late_to_answer_is_written_once(events: EventLog) -> None:
    events.append("t", [("one", {})], least=0, written=("w1", 0))
    assert events.append("t", [("one", {}), ("two", {})], least=0, written=("w1", 0)) == 2
    assert events.append("t", [("one", {})], least=0, written=("w1", 0)) == 2  # its first sending, run only now
    assert events.append("t", [("three", {})], least=2, written=("w1", 2)) == 3
    assert events.append("t", [("of the next owner", {})], least=3, written=("w2", 0)) == 4
    told = ["one", "two", "three", "of the next owner"]
    assert [event.type for event in events.read("t", after=0)] == told


def test_a_restored_log_has_the_given_ids_and_goes_on_behind_them(events: EventLog) -> None:
    events.append("t", [("stray", {})] * 5, least=0)
    whole = tuple(Event(n, "x", {"n": n}) for n in range(1, 4))
    events.restore("t", whole)
    assert events.read("t", after=0) == whole
    assert events.append("t", [("y", {})], least=3) == 4


def test_reading_begins_behind_an_id(events: EventLog) -> None:
    events.append("t", [("x", {"n": n}) for n in range(1, 6)], least=0)
    assert [event.id for event in events.read("t", after=3)] == [4, 5]
    assert events.read("t", after=5) == ()
    assert events.read("other", after=0) == ()


def test_any_text_survives(events: EventLog) -> None:
    data = {"text": "Grüße 🙂\n\u2028", "lone": "\ud800", "nul": "\0", "deep": [{"a": None}]}
    events.append("t", [("x", data)], least=0)
    assert events.read("t", after=0)[0].data == data


def test_a_log_is_dropped_some_time_after_the_last_write(events: EventLog, valkey: redis.Redis) -> None:
    events.append("t", [("x", {})], least=0)
    events.restore("u", [Event(1, "x", {})])
    assert all(0 < valkey.ttl(f"loom:events:{turn}") <= RUNNING_TTL_S for turn in "tu")


FEW = EventSettings(log_bytes=10_000, ttl_s=30)


def test_a_log_holds_so_many_bytes_and_no_more_however_it_is_written(valkey: redis.Redis) -> None:
    events = EventLog(valkey, FEW)
    for n in range(300):
        assert events.append("t", [("x", {"text": "é" * (n % 40)}), ("y", {})], least=0) == 2 * n + 2
        assert held(valkey, "t") <= FEW.log_bytes
    found = events.read("t", after=0)
    assert [event.id for event in found] == list(range(found[0].id, 601))
    assert len(found) > 60, "what fits is kept"
    events.append("t", [("x", {"text": "z" * 20_000})], least=600)
    assert [event.id for event in events.read("t", after=0)] == [601], "the newest stays, whatever its size"


def test_a_restored_log_holds_no_more_either_and_goes_on(valkey: redis.Redis) -> None:
    events = EventLog(valkey, FEW)
    events.restore("t", [Event(n, "x", {"text": "a" * 100}) for n in range(1, 301)])
    found = events.read("t", after=0)
    assert found[-1].id == 300
    assert 40 < len(found) < 100
    assert events.append("t", [("y", {})], least=300) == 301


def held(valkey: redis.Redis, turn_id: str) -> int:
    """Bytes of types and data in a log."""
    entries: Any = valkey.xrange(f"loom:events:{turn_id}")
    return sum(len(fields["t"].encode()) + len(fields["d"].encode()) for _, fields in entries)


@pytest.mark.parametrize("last", ["turn.completed", "tool_call.completed"])
def test_a_log_is_kept_a_short_time_after_its_end_also_if_something_comes_late(valkey: redis.Redis, last: str) -> None:
    events = EventLog(valkey, FEW)
    events.append("t", [("turn.queued", {})], least=-1)
    events.append("t", [("turn.completed", {})], least=1)
    if last != "turn.completed":
        events.append("t", [(last, {})], least=1)
    assert 0 < valkey.ttl("loom:events:t") <= FEW.ttl_s
    assert 0 < valkey.ttl("loom:end:t") <= FEW.ttl_s


def test_logs_of_ended_turns_hold_so_many_bytes_together_and_the_first_goes_first(valkey: redis.Redis) -> None:
    events = EventLog(valkey, EventSettings(total_bytes=10_000))
    for n in range(30):
        ended(events, f"t{n}", size=900)
    kept = [n for n in range(30) if valkey.exists(f"loom:events:t{n}")]
    assert kept == list(range(kept[0], 30)), "the first go first"
    assert 8 <= len(kept) <= 11, "what fits is kept"
    assert valkey.llen("loom:ended-logs") == len(kept)
    assert 0 < valkey.ttl("loom:ended-logs") <= valkey.ttl(f"loom:events:t{kept[-1]}") + 2
    ended(events, "one", size=20_000)
    assert [event.type for event in events.read("one", after=0)] == ["x", "turn.completed"]
    assert valkey.keys("loom:events:*") == ["loom:events:one"], "the newest stays, whatever its size"


@pytest.mark.heavy
def test_logs_that_expire_or_are_restored_count_as_well(valkey: redis.Redis) -> None:
    events = EventLog(valkey, EventSettings(total_bytes=10_000, ttl_s=1))
    for n in range(8):
        ended(events, f"t{n}", size=900)
    until(lambda: not valkey.exists("loom:events:t7"), 10, "the logs have expired")
    for n in range(8, 12):
        text = Event(1, "x", {"text": "a" * 900})
        events.restore(f"t{n}", [text, Event(2, "turn.completed", {})])
    until(lambda: not valkey.exists("loom:events:t11"), 10, "these, too")
    ended(events, "last", size=900)
    assert valkey.llen("loom:ended-logs") == 1
    assert valkey.exists("loom:events:last")


def test_a_log_that_is_written_again_does_not_go_for_its_older_entry(valkey: redis.Redis) -> None:
    events = EventLog(valkey, EventSettings(total_bytes=10_000))
    ended(events, "t", size=7_000)
    events.append("t", [("turn.completed", {})], least=0)
    assert [event.id for event in events.read("t", after=0)] == [1, 2, 3]
    ended(events, "u", size=7_000)
    assert valkey.keys("loom:events:*") == ["loom:events:u"]
    assert valkey.llen("loom:ended-logs") == 1


def ended(events: EventLog, turn_id: str, *, size: int) -> None:
    """Write the log of a turn that has ended, of about so many bytes."""
    events.append(turn_id, [("x", {"text": "a" * size}), ("turn.completed", {})], least=0)


def test_what_is_forgotten_nobody_writes_again(events: EventLog, valkey: redis.Redis) -> None:
    events.append("t", [("x", {})], least=0)
    events.append("u", [("turn.completed", {})], least=0)
    events.forget({"t": True, "u": False, "long ago": False, "not begun": True})
    for turn_id in ("t", "u", "not begun"):
        with pytest.raises(Fenced):
            events.append(turn_id, [("y", {})], least=0)
        with pytest.raises(Fenced):
            events.restore(turn_id, [Event(1, "x", {})])
    assert events.append("long ago", [("x", {})], least=0) == 1
    valkey.delete("loom:events:long ago")
    left = set(valkey.keys("loom:*")) - {"loom:ended-logs"}
    assert sorted(left) == ["loom:gone:not begun", "loom:gone:t", "loom:gone:u"]
    assert all(valkey.ttl(key) > 0 for key in valkey.keys("loom:*"))


def test_many_turns_are_forgotten(events: EventLog, valkey: redis.Redis) -> None:
    for n in range(450):
        events.append(f"t{n}", [("x", {})], least=0)
    events.forget({f"t{n}": False for n in range(450)})
    assert valkey.keys("loom:e*") == []


@pytest.mark.parametrize(
    "question",
    [
        lambda events: events.append("t", [("x", {})], least=0),
        lambda events: events.last_id("t"),
        lambda events: events.forget({"t": True}),
        lambda events: events.restore("t", [Event(1, "x", {})]),
        lambda events: events.read("t", after=0),
    ],
)
def test_a_redis_that_is_not_there_is_unavailable(nowhere: EventLog, question: Callable[[EventLog], object]) -> None:
    with pytest.raises(Unavailable):
        question(nowhere)


def test_a_reader_during_a_restore_sees_the_log_before_or_after_and_nothing_between(events: EventLog) -> None:
    whole = tuple(Event(n, "x", {"n": n}) for n in range(1, 50))
    events.restore("t", whole)
    seen: list[tuple[Event, ...]] = []
    with ThreadPoolExecutor(1) as pool:
        stop = threading.Event()
        reading = pool.submit(lambda: seen.extend(events.read("t", after=0) for _ in iter(stop.is_set, True)))
        for _ in range(30):
            events.restore("t", whole)
        stop.set()
        reading.result(timeout=60)
    assert seen
    assert all(found == whole for found in seen)
