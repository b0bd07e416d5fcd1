from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import insert

from loom_worker.core.errors import Conflict, Invalid, NotFound
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.schema import shared_memory
from loom_worker.store.shared_memory import (
    KEY_CHARS,
    MOST_KEYS,
    TRIMMED,
    VALUE_BYTES,
    KeyWrite,
    Namespace,
    SharedMemory,
    after_prefix,
)
from tests.support.at_once import at_once
from tests.unit.store.made import NOW_MS

MINE = Namespace("acme", "AGENT", "player1")
KEYS = [
    "a",
    "A",
    "a%",
    "a_",
    "a\\",
    "ab",
    "a_b",
    "axb",
    "b",
    "é",
    "e\u0301",
    "\u0430",
    "\ud7ff",
    "\ue000",
    "a\U0010ffff",
    "🧨",
]


@pytest.fixture
def kept(database: Database) -> SharedMemory:
    return SharedMemory(database)


def change(expected: int | None = None, now_ms: int = NOW_MS) -> KeyWrite:
    return KeyWrite("player1", now_ms, expected)


def put(kept: SharedMemory, *keys: str, shelf: Namespace = MINE, value: Any = 1) -> None:
    for key in keys:
        kept.write(shelf, key, value, change())


def listed(kept: SharedMemory, prefix: str = "", shelf: Namespace = MINE) -> list[str]:
    return [entry.key for entry in kept.page(shelf, prefix, limit=100, after=None).items]


def fill(database: Database, count: int, *, is_deleted: bool, start: int = 0) -> None:
    row = {"workspace": "acme", "namespace": "AGENT", "owner": "player1", "updated_by": "x", "updated_ms": 1}
    made = [
        {
            **row,
            "key": f"k{n:06}",
            "value": None if is_deleted else [1],
            "is_deleted": is_deleted,
            "version": 1,
            "revision": n + 1,
        }
        for n in range(start, start + count)
    ]
    with database.write(lock=WHOLE) as tx:
        tx.execute(insert(shared_memory), made)


@pytest.mark.parametrize("value", [None, 0, "", "é", [1, {"a": None}], {"a": 1.5}, True, 10**30, "\x01\u2028"])
def test_a_value_comes_back_as_it_was_written(kept: SharedMemory, value: Any) -> None:
    assert kept.write(MINE, "sheet", value, change()) == 1
    entry = kept.read(MINE, "sheet")
    assert (entry.value, entry.version, entry.updated_by, entry.updated_ms) == (value, 1, "player1", NOW_MS)


def test_a_version_grows_by_one_with_every_change_and_through_a_deletion(kept: SharedMemory) -> None:
    assert [kept.write(MINE, "a", n, change()) for n in range(2)] == [1, 2]
    assert kept.delete(MINE, "a", change()) == 3
    assert kept.write(MINE, "a", 9, change()) == 4
    assert kept.write(MINE, "b", 9, change()) == 1


def test_a_write_that_expects_another_version_changes_nothing(kept: SharedMemory) -> None:
    put(kept, "a", value="first")
    for expected in (0, 2):
        with pytest.raises(Conflict) as raised:
            kept.write(MINE, "a", "second", change(expected))
        assert raised.value.args[1] == 1
    with pytest.raises(Conflict) as raised:
        kept.delete(MINE, "a", change(2))
    assert raised.value.args[1] == 1
    assert (kept.read(MINE, "a").value, kept.changes(MINE, "", since=0, limit=9).revision) == ("first", 1)


def test_zero_expects_that_there_is_no_key_though_there_was_one(kept: SharedMemory) -> None:
    assert kept.write(MINE, "a", 1, change(0)) == 1
    kept.delete(MINE, "a", change(1))
    with pytest.raises(Conflict):
        kept.write(MINE, "a", 1, change(2))
    assert kept.write(MINE, "a", 1, change(0)) == 3


def test_of_many_who_count_a_key_up_none_is_lost(kept: SharedMemory) -> None:
    def run(_number: int) -> None:
        left = 10
        while left:
            try:
                entry = kept.read(MINE, "n")
                kept.write(MINE, "n", entry.value + 1, change(entry.version))
                left -= 1
            except Conflict:
                continue

    put(kept, "n", value=0)
    at_once(run, range(4))
    assert (kept.read(MINE, "n").value, kept.read(MINE, "n").version) == (40, 41)


def test_what_is_deleted_is_neither_read_nor_listed_nor_deleted_again(kept: SharedMemory) -> None:
    put(kept, "a", "b")
    kept.delete(MINE, "a", change())
    assert listed(kept) == ["b"]
    with pytest.raises(NotFound):
        kept.read(MINE, "a")
    for expected in (None, 2):
        with pytest.raises(NotFound):
            kept.delete(MINE, "a", change(expected))


@pytest.fixture
def full(kept: SharedMemory) -> SharedMemory:
    """With all keys on the shelf."""
    put(kept, *KEYS)
    return kept


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(prefix=st.one_of(st.sampled_from([*KEYS, "", "%", "_", "A_", "\U0010ffff"]), st.text(max_size=3)))
def test_a_list_has_the_keys_that_begin_so_and_no_others(full: SharedMemory, prefix: str) -> None:
    if "\0" not in prefix:
        expected = sorted(key for key in KEYS if key.startswith(prefix))
        assert listed(full, prefix) == expected
        assert {entry.key for entry in full.changes(MINE, prefix, since=0, limit=99).entries} == set(expected)


@pytest.mark.cases(
    ("prefix", "end"), [("", None), ("a", "b"), ("a\U0010ffff", "b"), ("\U0010ffff", None), ("\ud7ff", "\ue000")]
)
def test_a_range_of_keys_ends_behind_all_that_begin_so(prefix: str, end: str | None) -> None:
    assert after_prefix(prefix) == end


@pytest.mark.parametrize("limit", [1, 5, 16, 17])
def test_keys_are_listed_once_each_page_by_page(kept: SharedMemory, limit: int) -> None:
    put(kept, *KEYS)
    found: list[str] = []
    after = None
    for _ in range(len(KEYS) + 1):
        page = kept.page(MINE, "", limit=limit, after=after)
        found += [entry.key for entry in page.items]
        after = page.next
        if after is None:
            break
    assert found == sorted(KEYS)


def test_each_shelf_has_keys_versions_and_revisions_of_its_own(kept: SharedMemory) -> None:
    shelves = [
        Namespace(workspace, namespace, owner)
        for workspace in ("acme", "other")
        for namespace in ("AGENT", "GLOBAL")
        for owner in ("", "player1", "player1:x", "PLAYER1")
    ]
    for number, shelf in enumerate(shelves):
        assert kept.write(shelf, "x", number, change(0)) == 1
    assert [kept.read(shelf, "x").value for shelf in shelves] == list(range(len(shelves)))
    kept.delete(shelves[0], "x", change())
    assert [kept.changes(shelf, "", since=0, limit=9).revision for shelf in shelves] == [2] + [1] * (len(shelves) - 1)


def test_changes_come_in_their_order_deletions_among_them(kept: SharedMemory) -> None:
    put(kept, "a", "b", "c", "a")
    kept.delete(MINE, "b", change())
    changes = kept.changes(MINE, "", since=1, limit=9)
    assert [(entry.key, entry.revision, entry.version) for entry in changes.entries] == [
        ("c", 3, 1),
        ("a", 4, 2),
        ("b", 5, 2),
    ]
    assert [entry.is_deleted for entry in changes.entries] == [False, False, True]
    assert (changes.revision, changes.has_more) == (5, False)
    assert kept.changes(MINE, "", since=5, limit=9).entries == ()
    assert [entry.key for entry in kept.changes(MINE, "", since=0, limit=9).entries] == ["c", "a"]


def test_changes_that_are_too_many_go_on_where_they_ended(kept: SharedMemory) -> None:
    put(kept, *"abcde")
    first = kept.changes(MINE, "", since=0, limit=3)
    assert ([entry.key for entry in first.entries], first.revision, first.has_more) == (["a", "b", "c"], 3, True)
    rest = kept.changes(MINE, "", since=first.revision, limit=3)
    assert ([entry.key for entry in rest.entries], rest.revision, rest.has_more) == (["d", "e"], 5, False)


def test_a_revision_counts_changes_that_the_prefix_leaves_out(kept: SharedMemory) -> None:
    put(kept, "a", "b", "b")
    changes = kept.changes(MINE, "a", since=0, limit=9)
    assert ([entry.key for entry in changes.entries], changes.revision) == (["a"], 3)


@pytest.mark.cases("key", ["", "k" * (KEY_CHARS + 1), "a\0b", "\ud800"])
def test_what_can_be_no_key_is_refused(kept: SharedMemory, key: str) -> None:
    for ask in (
        lambda: kept.write(MINE, key, 1, change()),
        lambda: kept.read(MINE, key),
        lambda: kept.delete(MINE, key, change()),
        lambda: kept.page(MINE, "", limit=9, after=key),
        lambda: kept.page(MINE, key or "\0", limit=9, after=None),
        lambda: kept.changes(MINE, key or "\0", since=0, limit=9),
    ):
        with pytest.raises(Invalid):
            ask()
    kept.write(MINE, "🧨" * KEY_CHARS, 1, change())


@pytest.mark.cases("value", ["x" * (VALUE_BYTES - 1), ["é"] * VALUE_BYTES, float("nan"), "\ud800", {1, 2}, object()])
def test_what_can_be_no_value_is_refused(kept: SharedMemory, value: Any) -> None:
    with pytest.raises(Invalid):
        kept.write(MINE, "a", value, change())
    kept.write(MINE, "a", "x" * (VALUE_BYTES - 2), change())


def test_a_shelf_is_full_for_new_keys_alone(database: Database, kept: SharedMemory) -> None:
    fill(database, MOST_KEYS, is_deleted=False)
    with pytest.raises(Invalid, match="10,000 keys"):
        put(kept, "new")
    put(kept, "k000001")
    put(kept, "new", shelf=Namespace("acme", "AGENT", "player2"))
    kept.delete(MINE, "k000001", change())
    put(kept, "new")
    with pytest.raises(Invalid, match="10,000 keys"):
        put(kept, "k000001")


def test_too_many_deletions_are_not_remembered(database: Database, kept: SharedMemory) -> None:
    fill(database, 2 * MOST_KEYS, is_deleted=True)
    put(kept, "new")
    oldest = kept.changes(MINE, "", since=1, limit=1).entries[0]
    assert (oldest.revision, kept.read(MINE, "new").version) == (TRIMMED + 1, 1)


def test_old_deletions_are_forgotten_and_revisions_go_on(kept: SharedMemory) -> None:
    put(kept, "a", "b", "c")
    for moment, key in enumerate("abc"):
        kept.delete(MINE, key, change(now_ms=NOW_MS + moment))
    assert [kept.expire(before_ms=NOW_MS + 9, limit=1) for _ in range(3)] == [1, 1, 0]
    assert [entry.key for entry in kept.changes(MINE, "", since=1, limit=9).entries] == ["c"]
    put(kept, "a")
    assert [(entry.key, entry.revision) for entry in kept.changes(MINE, "", since=6, limit=9).entries] == [("a", 7)]
    assert kept.expire(before_ms=NOW_MS + 2) == 0
    assert kept.expire(before_ms=NOW_MS + 3) == 1
    assert listed(kept) == ["a"]
