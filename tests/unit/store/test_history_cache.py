"""What a process remembers of sessions, and what it reads anew."""

from dataclasses import replace

import pytest

from loom_worker.core.errors import Fenced
from loom_worker.core.values.sessions import Message
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.memory import HistoryCache, Memories
from loom_worker.store.messages import Messages
from loom_worker.store.tables import memory
from tests.support.sql_heard import heard
from tests.unit.store.made import WORKSPACE, running, said


def stored(database: Database) -> tuple[Message, ...]:
    return Messages(database).page(WORKSPACE, "s1", limit=100, after=None).items


def numbers(memories: Memories, lane: str, limit: int = 100) -> list[int]:
    return [one.n for one in memories.load(lane, limit=limit).history]


def test_only_what_was_said_since_is_read(database: Database) -> None:
    lane, memories = said(database, turns=3), Memories(database)
    first = memories.load(lane, limit=100).history
    said(database, turns=1)
    with heard(database) as statements:
        history = memories.load(lane, limit=100).history
    assert history[: len(first)] == first
    assert all(one is other for one, other in zip(history, first, strict=False))
    assert [one.n for one in history] == [one.n for one in stored(database)]
    assert any(f"messages.n >= {first[-1].n + 1}" in one for one in statements)


def test_what_has_left_l1_is_not_there_any_more(database: Database) -> None:
    lane, memories = said(database, turns=3), Memories(database)
    before = numbers(memories, lane)
    with database.write(lock=WHOLE) as tx:
        tx.execute(memory.insert().values(lane=lane, first_n=before[2], version=1))
    assert numbers(memories, lane) == before[2:]
    said(database, turns=1)
    assert numbers(memories, lane)[:-2] == before[2:]


def test_more_new_messages_than_are_read_leave_no_gap(database: Database) -> None:
    lane, memories = said(database, turns=2), Memories(database)
    numbers(memories, lane, limit=4)
    said(database, turns=5)
    assert numbers(memories, lane, limit=4) == [one.n for one in stored(database)][-4:]


def test_a_look_at_the_state_alone_forgets_nothing(database: Database) -> None:
    lane, memories = said(database, turns=2), Memories(database)
    numbers(memories, lane)
    assert memories.load(lane, limit=0).history == ()
    with heard(database) as statements:
        assert len(numbers(memories, lane)) == 4
    assert not any("messages.n >= 0" in one for one in statements)


def test_who_has_lost_the_turn_is_told_nothing_out_of_memory(database: Database) -> None:
    lane, memories = said(database, turns=2), Memories(database)
    numbers(memories, lane)
    claim = running(database)
    overtaken = replace(claim, turn=replace(claim.turn, fence=claim.turn.fence - 1))
    with pytest.raises(Fenced):
        memories.load(lane, limit=100, claim=overtaken)


def test_the_session_that_was_read_longest_ago_makes_room(database: Database) -> None:
    said(database, turns=2)
    history = stored(database)
    cache = HistoryCache(most_chars=2 * 1_100 * len(history))
    for lane in ("a", "b"):
        cache.keep(lane, history)
    assert cache.get("a") == history
    cache.keep("c", history)
    assert [bool(cache.get(lane)) for lane in ("a", "b", "c")] == [True, False, True]


def test_a_history_that_grows_is_counted_as_a_whole(database: Database) -> None:
    said(database, turns=3)
    history = stored(database)
    cache = HistoryCache(most_chars=1_100 * len(history))
    for end in range(2, len(history) + 1, 2):
        cache.keep("a", history[:end])
    cache.keep("b", history[:2])
    assert cache.get("a") == ()
    assert cache.get("b") == history[:2]
