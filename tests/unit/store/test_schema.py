"""The queries that run for every turn find their rows by an index, at any size of the tables."""

from collections.abc import Callable

import pytest

from loom_worker.core.values.audit import AuditFilter
from loom_worker.core.values.memory import MemoryState
from loom_worker.core.values.tenants import WorkspaceUser
from loom_worker.core.values.turns import UNFINISHED
from loom_worker.store.api_keys import KeyRows
from loom_worker.store.audit import AuditRows
from loom_worker.store.claims import Claims
from loom_worker.store.database import Database
from loom_worker.store.journal import Journal
from loom_worker.store.learned import AgentOf, LearnedLayers
from loom_worker.store.ledger import Ledger
from loom_worker.store.memory import Memories, NewMemory, NewSnapshot
from loom_worker.store.outbox import Outbox
from loom_worker.store.schema import metadata, unfinished
from loom_worker.store.search import Search
from loom_worker.store.sessions import Sessions
from loom_worker.store.turns import Turns
from tests.support.query_plans import plans
from tests.unit.store.made import NOW_MS, WORKSPACE, final, held, message, purged, running, said, submitted


def said_and_searched(database: Database) -> None:
    claim = running(database)
    Journal(database).finish(claim, final(said=(message(1, claim),)))
    assert Search(database).session(WORKSPACE, "s1", "text", limit=9)


def recalled_and_loaded(database: Database) -> None:
    lane = said(database, turns=3)
    memories = Memories(database)
    page, _ = memories.page_from(lane, offset=0, limit=2)
    memories.promote_in_lane(lane, [one.id for one in page], budget_tokens=9, tokens=len)
    assert memories.load(lane, limit=9).recalled == page


def compressed(database: Database) -> None:
    lane, memories = said(database, turns=1), Memories(database)
    claim = held(database, lane)
    new = NewSnapshot("snap_1", "notes", 1, 1, 1)
    assert memories.apply(lane, claim.state, NewMemory(claim.state, snapshot=new), now_ms=NOW_MS)
    memories.release(lane, "w1", is_done=True, seen_due_ms=claim.due_ms)
    assert memories.snapshots(WORKSPACE, "s1", limit=9, after="snap_2").items


def said_deleted_and_purged(database: Database) -> None:
    said(database, turns=3)
    Sessions(database).delete(WORKSPACE, "s1")
    assert purged(database, limit=2)


MARIA = WorkspaceUser(WORKSPACE, "maria")

ACTS: dict[str, tuple[Callable[[Database], object], str]] = {
    "submit": (lambda database: submitted(database), "sessions_2 (workspace=? AND id=?)"),
    "submit with a key": (lambda database: submitted(database, idempotency_key="k"), "turns_by_key"),
    "the depth of the workspace": (lambda database: submitted(database), "workspace_depths USING PRIMARY KEY"),
    "claim": (
        lambda database: Claims(database).claim("lane", worker="w", now_ms=NOW_MS),
        "turns_unfinished (lane=?)",
    ),
    "scores of a learned version": (
        lambda database: LearnedLayers(database).scores(AgentOf(WORKSPACE, "default"), (1,)),
        "turns_by_learned (workspace=? AND agent=? AND learned_version=?)",
    ),
    "open lanes": (
        lambda database: Claims(database).open_lanes(created_before_ms=NOW_MS, limit=9),
        "turns_unfinished (lane>?)",
    ),
    "lanes with news": (lambda database: Claims(database).answered_lanes(limit=9), "turns_open_by_status (status=?)"),
    "the queue": (
        lambda database: Turns(database).stats(WORKSPACE, now_ms=NOW_MS),
        "turns_open_by_status (status=? AND workspace=?)",
    ),
    "turns that killed their workers": (
        lambda database: Turns(database).stats(WORKSPACE, now_ms=NOW_MS),
        "turns_dead (workspace=?)",
    ),
    "one open lane": (lambda database: Claims(database).open_lane("lane"), "turns_unfinished (lane=?)"),
    "due deliveries": (lambda database: Outbox(database).due(now_ms=NOW_MS, limit=9), "outbox_due (next_ms<?)"),
    "the memory of a turn": (
        lambda database: recalled_and_loaded(database),
        "messages_by_session (lane=? AND n>?)",
    ),
    "messages that were promoted": (lambda database: recalled_and_loaded(database), "messages_1 (id=?)"),
    "due memories": (lambda database: Memories(database).due(due_before_ms=NOW_MS, limit=9), "memory_due (due_ms<?)"),
    "the oldest of L1": (
        lambda database: Memories(database).oldest("lane", MemoryState(), limit=9),
        "messages_by_session (lane=? AND n>?)",
    ),
    "a change of memory": (lambda database: compressed(database), "PRIMARY KEY"),
    "snapshots": (
        lambda database: compressed(database),
        "memory_snapshots_by_session (lane=? AND id<?)",
    ),
    "what is left of a session": (
        lambda database: said_deleted_and_purged(database),
        "sessions_by_time (workspace=?)",
    ),
    "search": (
        lambda database: said_and_searched(database),
        "messages_by_session (lane=? AND n<?)",
    ),
    "a page of turns": (
        lambda database: Turns(database).page(WORKSPACE, {}, limit=9, after="turn_x"),
        "turns_by_workspace (workspace=? AND id<?)",
    ),
    "a user's page of sessions": (
        lambda database: Sessions(database).page(MARIA, limit=9, after=None),
        "sessions_by_user (workspace=? AND user=?)",
    ),
    "a key": (lambda database: KeyRows(database).by_hash("00"), "api_keys_by_hash (hash=?)"),
    "a page of keys": (
        lambda database: KeyRows(database).page(WORKSPACE, limit=9, after="key_x"),
        "api_keys_by_workspace (workspace=? AND id<?)",
    ),
    "a page of the audit": (
        lambda database: AuditRows(database).page(WORKSPACE, AuditFilter(), limit=9, after=f"aud_{7:012}00"),
        "PRIMARY KEY",
    ),
    "the audit of a session": (
        lambda database: AuditRows(database).page(WORKSPACE, AuditFilter(session_id="s1"), limit=9, after=None),
        "audit_by_session (workspace=? AND session_id=?)",
    ),
    "the audit of a turn": (
        lambda database: AuditRows(database).page(WORKSPACE, AuditFilter(turn_id="t"), limit=9, after=None),
        "audit_by_turn (workspace=? AND turn_id=?)",
    ),
    "the audit of a user": (
        lambda database: AuditRows(database).page(MARIA, AuditFilter(), limit=9, after=None),
        "audit_by_user (workspace=? AND user=?)",
    ),
    "the end of a turn": (lambda database: Journal(database).finish(running(database), final()), "PRIMARY KEY"),
}


FOLDED = {"audit_inbox", "use_deltas"}
"""They hold what happened in the last second."""


@pytest.mark.parametrize("what", ACTS)
def test_no_table_is_read_from_end_to_end(database: Database, what: str) -> None:
    act, index = ACTS[what]
    found = plans(database, lambda: act(database))
    scans = [plan for plan in found if plan.startswith("SCAN") and "USING" not in plan]
    assert [plan for plan in scans if plan.split()[1] in {*metadata.tables} - FOLDED] == []
    if database.engine.name == "SQLite":  # among empty tables' indexes PostgreSQL takes any that will do
        assert [plan for plan in found if "TEMP B-TREE" in plan] == []
        assert any(index in plan for plan in found) or index == "PRIMARY KEY"


def test_what_a_user_spent_is_found_by_an_index_of_users(database: Database) -> None:
    found = plans(database, lambda: Ledger(database).totals(MARIA, group_by="workspace"))
    assert any("usage_by_user (workspace=? AND user=?)" in plan for plan in found)


def test_the_condition_of_the_partial_indexes_names_the_statuses_that_are_not_final() -> None:
    sql = str(unfinished().compile(compile_kwargs={"literal_binds": True}))
    assert sql == "turns.status IN ({})".format(", ".join(f"'{status}'" for status in UNFINISHED))
