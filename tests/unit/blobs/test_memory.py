from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loom_worker.blobs.memory import INDEX, PREFIX, TOTAL, MemoryTier
from loom_worker.core.errors import Unavailable
from loom_worker.core.metrics import LARGE_RESULT_EVENTS
from loom_worker.core.redis_client import client as connect
from tests.support.counting import Counted
from tests.unit.blobs.made import BOUND, new_ref

REFS = [f"ref_{number:032x}" for number in range(12)]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 11), st.integers(0, 6_000)),
        st.tuples(st.just("get"), st.integers(0, 11), st.just(0)),
        st.tuples(st.just("drop"), st.integers(0, 11), st.just(0)),
        st.tuples(st.sampled_from(["lose index", "lose total", "lose blob"]), st.integers(0, 11), st.just(0)),
    ),
    max_size=25,
)


def held_bytes(client: Any) -> int:
    """Of the blobs that the index knows, by their keys."""
    # One that was lost and put again stands in the index twice, until the older entry is let go of.
    refs = {member.split(b":")[1].decode() for member in client.zrange(INDEX, 0, -1)}
    return sum(client.strlen(PREFIX + ref) for ref in refs)


def put_many(memory: MemoryTier, count: int, size: int) -> list[str]:
    refs = [new_ref() for _ in range(count)]
    for ref in refs:
        memory.put(ref, b"x" * size)
    return refs


def present(memory: MemoryTier, refs: list[str]) -> list[bool]:
    return [memory.get(ref, most_bytes=BOUND) is not None for ref in refs]


@given(STEPS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_bound_holds_whatever_is_put_and_lost(client: Any, steps: list[tuple[str, int, int]]) -> None:
    client.flushall()
    one, other = MemoryTier(client, most_bytes=BOUND, ttl_s=60), MemoryTier(client, most_bytes=BOUND, ttl_s=60)
    for n, (step, number, size) in enumerate(steps):
        memory, ref = (one, other)[n % 2], REFS[number]
        match step:
            case "put":
                memory.put(ref, bytes([number]) * size)
            case "get":
                found = memory.get(ref, most_bytes=BOUND)
                assert found is None or set(found) <= {number}
            case "drop":
                memory.drop([ref])
                assert memory.get(ref, most_bytes=BOUND) is None
            case "lose index":
                client.delete(INDEX)
            case "lose total":
                client.delete(TOTAL)
            case _:
                client.delete(PREFIX + ref)
        assert held_bytes(client) <= BOUND


def test_the_total_is_that_of_the_blobs(client: Any, memory: MemoryTier) -> None:
    refs = put_many(memory, 5, 1_000)
    memory.put(refs[0], b"y" * 500)
    memory.drop(refs[3:])
    memory.put(new_ref(), b"z" * 700)
    held = memory.usage()
    assert (held.blobs, held.stored_bytes) == (4, 3_200)
    assert held_bytes(client) == 3_200


def test_those_used_least_lately_go_first(memory: MemoryTier) -> None:
    refs = put_many(memory, 3, 3_000)
    assert present(memory, refs[:1]) == [True]
    newest = put_many(memory, 1, 3_000)
    assert present(memory, refs + newest) == [True, False, True, True]


def test_evictions_hits_and_misses_are_counted(memory: MemoryTier, counted: Counted) -> None:
    refs = put_many(memory, 3, 5_000)
    assert present(memory, refs) == [False, True, True]
    assert counted(LARGE_RESULT_EVENTS) == {("evicted",): 1, ("memory_hits",): 2, ("memory_misses",): 1}


def test_more_than_the_bound_is_not_kept_and_evicts_nothing(memory: MemoryTier) -> None:
    refs = put_many(memory, 2, 1_000) + put_many(memory, 1, BOUND + 1)
    assert present(memory, refs) == [True, True, False]


def test_without_a_bound_nothing_is_kept(client: Any) -> None:
    memory = MemoryTier(client, most_bytes=0, ttl_s=60)
    memory.put(REFS[0], b"")
    memory.put(REFS[1], b"data")
    assert present(memory, REFS[:2]) == [False, False]
    assert client.keys("loom:blob:*") == []


def test_a_lost_index_leaves_no_blob_uncounted(client: Any, memory: MemoryTier) -> None:
    (ref,) = put_many(memory, 1, 1_000)
    client.delete(INDEX)
    assert memory.get(ref, most_bytes=BOUND) is None
    assert client.exists(PREFIX + ref) == 0


def test_every_blob_ends_by_itself_and_later_when_it_is_used(client: Any, memory: MemoryTier) -> None:
    (ref,) = put_many(memory, 1, 10)
    assert 59_000 < client.pttl(PREFIX + ref) <= 60_000
    client.pexpire(PREFIX + ref, 5_000)
    memory.get(ref, most_bytes=10)
    assert client.pttl(PREFIX + ref) > 59_000


def test_what_ended_by_itself_makes_room(client: Any, memory: MemoryTier) -> None:
    refs = put_many(memory, 2, 4_000)
    client.delete(PREFIX + refs[0])
    newer = put_many(memory, 1, 6_000)
    assert present(memory, refs + newer) == [False, True, True]


def test_without_redis_nothing_is_here_and_nothing_fails() -> None:
    gone = connect("redis://127.0.0.1:1", connections=2)
    memory, ref = MemoryTier(gone, most_bytes=BOUND, ttl_s=60), new_ref()
    memory.put(ref, b"data")
    memory.drop([ref])
    assert memory.get(ref, most_bytes=10) is None
    with pytest.raises(Unavailable):
        memory.usage()
