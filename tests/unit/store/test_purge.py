"""A deleted session is gone at once for everyone, and its rows go in small transactions."""

from collections.abc import Callable

import pytest

from loom_worker.core.errors import Fenced, NotFound
from loom_worker.core.settings import LimitSettings, Settings
from loom_worker.core.values.chat import ChatMessage
from loom_worker.core.values.sessions import NewSession, SessionPatch
from loom_worker.core.values.turns import Ending, NewTurn, Retry, Step, Turn
from loom_worker.store.calls import Calls
from loom_worker.store.cancel import cancel
from loom_worker.store.claims import Claims, Idle
from loom_worker.store.database import Database
from loom_worker.store.dialect import is_postgresql
from loom_worker.store.journal import Entries, Journal
from loom_worker.store.ledger import Ledger
from loom_worker.store.memory import Memories, NewMemory, NewSnapshot
from loom_worker.store.messages import Messages
from loom_worker.store.outbox import Outbox
from loom_worker.store.purge import BATCH_CHARACTERS
from loom_worker.store.search import Search
from loom_worker.store.sessions import Sessions
from loom_worker.store.submit import retry, submit
from loom_worker.store.turns import Turns
from tests.support.at_once import at_once
from tests.unit.store.made import (
    NOW_MS,
    PROGRESS,
    WORKSPACE,
    call,
    counts,
    delivery,
    filled,
    final,
    message,
    purged,
    running,
    said,
    submitted,
)

KEYS = {"idempotency_key": "k", "fingerprint": "f"}


@pytest.fixture
def ended(database: Database) -> Turn:
    """A turn of s1 that failed as dead, with everything a turn can have; s2 has one like it."""
    for number, session in enumerate(("s2", "s1")):
        claim = running(database, session, **(KEYS if session == "s1" else {}))
        Journal(database).save(claim, Entries((Step(1, "matched", {}),), (call(0),)), PROGRESS)
        told = (message(number, claim, chat=ChatMessage("user", text="a red boat")),)
        dead = final(ending=Ending("failed", "dead"), said=told, delivery=delivery(number, claim), memory_due=True)
        Journal(database).finish(claim, dead)
    held = Memories(database).claim(claim.turn.lane, worker="w", alive=frozenset(), now_ms=NOW_MS)
    assert held is not None
    new = NewSnapshot("snap_1", "notes", 1, 1, 1)
    Memories(database).apply(claim.turn.lane, held.state, NewMemory(held.state, snapshot=new), now_ms=NOW_MS)
    return Turns(database).get(WORKSPACE, claim.turn.id)


def test_what_is_deleted_is_found_by_nobody_though_its_rows_are_there(database: Database, ended: Turn) -> None:
    Sessions(database).delete(WORKSPACE, "s1")
    assert counts(database)["messages"] == 2
    asks: tuple[Callable[[], object], ...] = (
        lambda: Sessions(database).get(WORKSPACE, "s1"),
        lambda: Sessions(database).patch(WORKSPACE, "s1", SessionPatch(title="x"), now_ms=NOW_MS),
        lambda: Sessions(database).delete(WORKSPACE, "s1"),
        lambda: Turns(database).get(WORKSPACE, ended.id),
        lambda: Turns(database).page(WORKSPACE, {"session_id": "s1"}, limit=9, after=None),
        lambda: cancel(database, (WORKSPACE, ended.id), "interrupt", now_ms=NOW_MS, deliver=lambda _: None),
        lambda: retry(database, LimitSettings(), (WORKSPACE, ended.id), Retry(), now_ms=NOW_MS),
        lambda: Messages(database).page(WORKSPACE, "s1", limit=9, after=None),
        lambda: Search(database).session(WORKSPACE, "s1", "boat", limit=9),
        lambda: Memories(database).snapshots(WORKSPACE, "s1", limit=9, after=None),
        lambda: Memories(database).clear_promoted(WORKSPACE, "s1"),
        lambda: Outbox(database).replay(WORKSPACE, "whd_0001", now_ms=NOW_MS),
    )
    for ask in asks:
        with pytest.raises(NotFound):
            ask()


def test_no_list_and_no_count_shows_what_is_deleted(database: Database, ended: Turn) -> None:
    running(database, "s1")
    submitted(database, "s1")
    Sessions(database).delete(WORKSPACE, "s1")
    assert [one.id for one in Sessions(database).page(WORKSPACE, limit=9, after=None).items] == ["s2"]
    assert {one.session_id for one in Turns(database).page(WORKSPACE, {}, limit=9, after=None).items} == {"s2"}
    failed = Turns(database).page(WORKSPACE, {"status": "failed", "reason": "dead"}, limit=9, after=None)
    assert [one.session_id for one in failed.items] == ["s2"]
    assert [one.id for one in Outbox(database).page(WORKSPACE, limit=9, after=None).items] == ["whd_0000"]
    assert Outbox(database).due(now_ms=NOW_MS, limit=9) == ("whd_0000",)
    assert Outbox(database).take("whd_0001", now_ms=NOW_MS, hold_ms=1) is None
    stats = Turns(database).stats(WORKSPACE, now_ms=NOW_MS)
    assert (stats["lanes"], stats["queued"], stats["running"], stats["dead"]) == (0, 0, 0, 1)
    assert Claims(database).open_lanes(created_before_ms=NOW_MS + 1, limit=9) == ()
    assert [row["key"] for row in Ledger(database).totals(WORKSPACE, group_by="session")] == ["s1", "s2"]


def test_no_turn_of_a_deleted_session_runs_or_goes_on(database: Database) -> None:
    claim = running(database)
    Journal(database).save(claim, Entries((Step(1, "matched", {}),), (call(0),)), PROGRESS)
    submitted(database)
    Sessions(database).delete(WORKSPACE, "s1")
    assert Claims(database).claim(claim.turn.lane, worker="w", now_ms=NOW_MS) is Idle.EMPTY
    assert Claims(database).resume(claim.turn.id, fence=claim.turn.fence) is None
    assert Calls(database).claim(claim.turn.id, 0, 1, worker="w", now_ms=NOW_MS, durable=False) is None
    assert Calls(database).owner_of(claim.turn.id, 0) is None
    acts: tuple[Callable[[], object], ...] = (
        lambda: Journal(database).save(claim, Entries((Step(2, "reply", {}),)), PROGRESS),
        lambda: Journal(database).finish(claim, final(memory_due=True)),
        lambda: Claims(database).release(claim, run_ms=1),
    )
    for act in acts:
        with pytest.raises(Fenced):
            act()
    assert counts(database)["memory"] == 0


def test_the_name_and_the_idempotency_key_are_free_at_once(database: Database, ended: Turn) -> None:
    (old,) = Sessions(database).delete(WORKSPACE, "s1")
    new, is_replay = submit(
        database,
        LimitSettings(),
        (WORKSPACE, NewSession(id="s1")),
        NewTurn("other", idempotency_key="k", fingerprint="another"),
        now_ms=NOW_MS,
    )
    assert (is_replay, new.seq, new.session_id) == (False, 1, "s1")
    assert new.lane != old
    assert Messages(database).page(WORKSPACE, "s1", limit=9, after=None).items == ()
    assert Search(database).session(WORKSPACE, "s1", "boat", limit=9) == ()
    purged(database)
    assert submitted(database, "s1", input="other", idempotency_key="k", fingerprint="another").id == new.id


def test_a_name_can_be_deleted_again_while_the_rows_of_the_first_are_there(database: Database) -> None:
    for _ in range(3):
        said(database, turns=1)
        Sessions(database).delete(WORKSPACE, "s1")
    assert counts(database)["sessions"] == 3
    purged(database)
    assert {name: rows for name, rows in counts(database).items() if rows} == {"usage": 3}


def batches(database: Database, limit: int) -> list[int]:
    """Rows of all tables that are gone after each batch, until nothing is left."""
    removed, before = [], sum(counts(database).values())
    while Sessions(database).purge(limit=limit):
        after = sum(counts(database).values())
        removed.append(before - after)
        before = after
    return removed


def test_rows_go_in_batches_of_a_bounded_size_and_others_stay(database: Database, ended: Turn) -> None:
    said(database, turns=20, size=3)
    said(database, workspace="other", turns=2)
    Sessions(database).delete(WORKSPACE, "s1")
    spent = counts(database)["usage"]
    removed = batches(database, limit=10)
    assert max(removed) <= 10
    assert min(removed) > 0
    assert filled(database) == {
        "sessions": 2, "turns": 3, "steps": 1, "calls": 1, "messages": 5, "outbox": 1, "memory": 1, "usage": spent,
    }  # fmt: skip
    assert Sessions(database).purge() == 0


def test_long_messages_go_few_at_a_time(database: Database) -> None:
    claim = running(database)
    sizes = (BATCH_CHARACTERS // 3, BATCH_CHARACTERS // 3, 3 * BATCH_CHARACTERS, 10, 10)
    told = [message(n, claim, chat=ChatMessage("user", text="x " * (size // 2))) for n, size in enumerate(sizes)]
    Journal(database).finish(claim, final(said=told))
    Sessions(database).delete(WORKSPACE, "s1")
    assert batches(database, limit=100)[:3] == [2, 1, 2]


def test_a_removal_that_was_broken_off_is_taken_up_by_anybody(database: Database, settings: Settings) -> None:
    said(database, turns=9)
    Sessions(database).delete(WORKSPACE, "s1")
    assert Sessions(database).purge(limit=5) == 5
    later = Database(settings.database_url, sync=settings.sqlite_sync)
    purged(later, limit=5)
    later.close()
    assert {name: rows for name, rows in counts(database).items() if rows} == {"usage": 9}


def test_the_search_index_forgets_what_is_removed(database: Database, ended: Turn) -> None:
    Sessions(database).delete(WORKSPACE, "s1")
    purged(database)
    with database.read() as tx:
        match = "SELECT rowid FROM messages_fts5 WHERE messages_fts5 MATCH 'boat'"
        if is_postgresql(tx):
            match = "SELECT n FROM messages WHERE search @@ CAST('boat' AS tsquery)"
        found = tx.exec_driver_sql(match).scalars().all()
        kept = tx.exec_driver_sql("SELECT n FROM messages").scalars().all()
    assert found == kept
    assert len(kept) == 1


def test_several_may_remove_at_once(database: Database) -> None:
    said(database, turns=20)
    said(database, "s2", turns=20)
    for session in ("s1", "s2"):
        Sessions(database).delete(WORKSPACE, session)
    at_once(lambda _: purged(database, limit=7), range(4))
    assert {name: rows for name, rows in counts(database).items() if rows} == {"usage": 40}


def test_nothing_that_is_not_deleted_is_ever_removed(database: Database, ended: Turn) -> None:
    before = counts(database)
    assert purged(database) == 0
    assert counts(database) == before
