"""One row for each turn that ends and for each act, in the transaction that does it; nobody changes or removes one."""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import select

from loom_worker.core.errors import Conflict, Overruled
from loom_worker.core.settings import Settings
from loom_worker.core.values.api_keys import ApiKey
from loom_worker.core.values.audit import AuditEntry, AuditFilter, AuditRow
from loom_worker.core.values.decisions import Decision
from loom_worker.core.values.sessions import NewSession
from loom_worker.core.values.tenants import Actor, WorkspaceUser
from loom_worker.core.values.turns import Ending
from loom_worker.store import approvals
from loom_worker.store.agent_messages import AgentMessages
from loom_worker.store.api_keys import KeyRows
from loom_worker.store.audit import AuditRows, append, chain
from loom_worker.store.cancel import cancel
from loom_worker.store.claims import Claims
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.journal import Entries, Journal
from loom_worker.store.outbox import Outbox
from loom_worker.store.sessions import Sessions
from loom_worker.store.tables import audit
from loom_worker.store.workspaces import Workspaces
from tests.support.agent_messages import dead
from tests.support.at_once import at_once
from tests.support.refused import REFUSED
from tests.support.without_triggers import without_triggers
from tests.unit.store.made import NOW_MS, PROGRESS, WORKSPACE, call, delivery, final, running, said, submitted

BY = Actor("key_admin", "boss")
ALL = AuditFilter()


def entry(number: int = 0, **fields: Any) -> AuditEntry:
    usual = {"workspace": WORKSPACE, "at_ms": NOW_MS + number, "action": "key.created", "subject": f"key_{number}"}
    return AuditEntry(**{**usual, **fields})


def written(database: Database, *entries: AuditEntry) -> None:
    for each in entries:
        with database.write(lock=WHOLE) as tx:
            append(tx, each)
        with database.write(lock=WHOLE) as tx:
            chain(tx)


def listed(database: Database, where: AuditFilter = ALL, **options: Any) -> list[AuditRow]:
    page = AuditRows(database).page(WORKSPACE, where, **{"limit": 99, "after": None, **options})
    return list(page.items)


def newest(database: Database) -> AuditEntry:
    return listed(database)[0].entry


def forced(database: Database, statement: str) -> None:
    """Change the database as somebody does who knows of the triggers."""
    with database.write(lock=WHOLE) as tx:
        without_triggers(tx, "audit_is_appended", "audit_is_not_changed", "audit_is_kept")
        tx.exec_driver_sql(statement)


REPLACING = "INSERT OR REPLACE INTO audit SELECT * FROM audit WHERE seq = 1"
"""SQLite's own words, behind which no trigger sees the row go."""


def test_a_turn_that_ends_leaves_one_row_with_its_figures(database: Database) -> None:
    claim = running(database)
    calls = (call(0, status="completed"), call(1, status="denied", approval="rejected", content="Denied"))
    guard = {"kind": "guard", "name": "secrets", "outcome": "passed"}
    Journal(database).finish(claim, final(all_calls=calls, decisions=(guard,)))
    [row] = listed(database)
    turn = claim.turn
    assert row.entry == AuditEntry(
        workspace=WORKSPACE, at_ms=NOW_MS + 100, action="turn.ended", key_id="local",
            agent=turn.agent, model="m1",
        session_id="s1", turn_id=turn.id, status="completed", tokens=15, cost_nano=250_000_000, duration_ms=5,
        tools=({"name": "look", "calls": 2, "outcomes": {"completed": 1, "denied": 1}},),
        decisions=({"kind": "approval", "name": "look", "outcome": "rejected"}, guard),
    )  # fmt: skip


def test_a_turn_of_a_user_s_session_names_the_user(database: Database) -> None:
    Sessions(database).create(WorkspaceUser(WORKSPACE, "maria"), NewSession(id="s1"), now_ms=NOW_MS)
    Journal(database).finish(running(database), final(ending=Ending("failed", "dead")))
    assert (newest(database).user, newest(database).status, newest(database).reason) == ("maria", "failed", "dead")


def test_an_end_that_is_overruled_leaves_no_row(database: Database) -> None:
    claim = running(database)
    cancel(database, (WORKSPACE, claim.turn.id), "rollback", now_ms=NOW_MS, deliver=lambda _: None)
    with pytest.raises(Overruled):
        Journal(database).finish(claim, final())
    assert listed(database) == []


def test_a_queued_turn_that_is_cancelled_leaves_a_row(database: Database) -> None:
    turn = submitted(database)
    cancel(database, (WORKSPACE, turn.id), "interrupt", now_ms=NOW_MS, deliver=lambda _: None)
    assert (newest(database).turn_id, newest(database).status) == (turn.id, "cancelled")


def test_a_deleted_session_leaves_a_row_for_itself_and_for_each_turn_that_it_stops(database: Database) -> None:
    claim = running(database)
    Journal(database).save(claim, Entries((), (call(0),)), PROGRESS)
    queued = submitted(database)
    Sessions(database).delete(WORKSPACE, "s1", by=BY)
    last, *stopped = listed(database)
    assert (last.entry.action, last.entry.key_id, last.entry.session_id) == ("session.deleted", "key_admin", "s1")
    ended = [(row.entry.turn_id, row.entry.status, row.entry.reason, len(row.entry.tools)) for row in stopped]
    assert ended == [(queued.id, "cancelled", "deleted", 0), (claim.turn.id, "cancelled", "deleted", 1)]


KEY = ApiKey("key_1", WORKSPACE, "CI", "loom_abc", ("chat",), NOW_MS)
NEW = ApiKey("key_2", WORKSPACE, "CI", "loom_def", ("chat",), NOW_MS + 5, rotated_from="key_1")


def keys_are_made_rotated_and_revoked(database: Database) -> None:
    keys = KeyRows(database)
    keys.add(KEY, "1" * 64, by=BY)
    keys.replace(KEY, NEW, "2" * 64, ends_ms=NOW_MS + 5, by=BY)
    keys.revoke(WORKSPACE, "key_2", now_ms=NOW_MS + 9, may_be_last=True, by=BY)
    keys.revoke(WORKSPACE, "key_2", now_ms=NOW_MS + 9, may_be_last=True, by=BY)  # changes nothing


def a_workspace_is_switched_off_and_on(database: Database) -> None:
    for changes in ({"disabled": True}, {"disabled": False}, {"budget": None}):
        Workspaces(database).patch(WORKSPACE, changes, now_ms=NOW_MS, by=BY)


def a_delivery_is_sent_again(database: Database) -> None:
    claim = running(database)
    Journal(database).finish(claim, final(delivery=delivery(1, claim)))
    Outbox(database).replay(WORKSPACE, "whd_0001", now_ms=NOW_MS, by=BY)


def a_dead_message_is_queued_again(database: Database) -> None:
    message_id = dead(database, submitted(database), id="amsg_0001", at_ms=NOW_MS)
    AgentMessages(database).replay(WORKSPACE, message_id, now_ms=NOW_MS, by=BY)


def a_person_decides(database: Database) -> None:
    claim = running(database)
    asking = call(0, sends=0, approval="waiting", approve_by_ms=NOW_MS)
    Journal(database).save(claim, Entries((), (asking,)), PROGRESS)
    said = Decision("reject", reason="Maria says no", by=BY)
    approvals.decide(database, WORKSPACE, claim.turn.id, asking.id, said, now_ms=NOW_MS)


ACTS: dict[str, tuple[Callable[[Database], None], list[tuple[str, str | None]]]] = {
    "keys": (
        keys_are_made_rotated_and_revoked,
        [("key.created", "key_1"), ("key.rotated", "key_2"), ("key.revoked", "key_2")],
    ),
    "workspaces": (
        a_workspace_is_switched_off_and_on,
        [("workspace.disabled", None), ("workspace.enabled", None), ("workspace.changed", None)],
    ),
    "deliveries": (a_delivery_is_sent_again, [("delivery.replayed", "whd_0001")]),
    "messages": (a_dead_message_is_queued_again, [("message.replayed", "amsg_0001")]),
    "approvals": (a_person_decides, [("approval.decided", "toolu_0")]),
}


@pytest.mark.parametrize("what", ACTS)
def test_each_act_leaves_a_row_that_says_who(database: Database, what: str) -> None:
    act, expected = ACTS[what]
    act(database)
    rows = [row.entry for row in reversed(listed(database)) if row.entry.action != "turn.ended"]
    assert [(row.action, row.subject) for row in rows] == expected
    assert {row.key_id for row in rows} == {"key_admin"}
    assert AuditRows(database).verify() == ()
    with database.read() as tx:
        assert "Maria" not in str(tx.execute(select(audit)).all())


def test_what_is_refused_leaves_no_row(database: Database) -> None:
    keys = KeyRows(database)
    keys.add(KEY, "1" * 64)
    with pytest.raises(Conflict):
        keys.revoke(WORKSPACE, "key_1", now_ms=NOW_MS, may_be_last=False, by=BY)
    assert [row.entry.action for row in listed(database)] == ["key.created"]


def written_and_broken_off(database: Database, wanted: AuditEntry) -> None:
    with database.write(lock=WHOLE) as tx:
        append(tx, wanted)
        raise RuntimeError


def test_what_fails_with_its_act_leaves_no_row_and_no_gap(database: Database) -> None:
    written(database, entry(0))
    with pytest.raises(RuntimeError):
        written_and_broken_off(database, entry(1))
    written(database, entry(2))
    assert [row.seq for row in listed(database)] == [2, 1]
    assert AuditRows(database).verify() == ()


@pytest.mark.parametrize(
    "statement",
    [
        'UPDATE audit SET "user" = 1',
        "DELETE FROM audit",
        "DELETE FROM audit WHERE seq = 2",
        REPLACING,
        "INSERT INTO audit SELECT * FROM audit WHERE seq = 1 ON CONFLICT (workspace, seq) DO UPDATE SET tokens = 7",
        'INSERT INTO audit SELECT workspace, 9, at_ms, action, key_id, "user", channel, agent, model, session_id, '
        "turn_id, subject, status, reason, tools, decisions, tokens, cost_nano, duration_ms, previous_hash, hash "
        "FROM audit WHERE seq = 1",
    ],
)
def test_rows_cannot_be_changed_removed_or_put_in_between(database: Database, statement: str) -> None:
    written(database, entry(0), entry(1))
    refused = "syntax" if (statement, database.engine.name) == (REPLACING, "PostgreSQL") else "rows of the audit"
    with pytest.raises(REFUSED, match=refused), database.write(lock=WHOLE) as tx:
        tx.exec_driver_sql(statement)
    assert [row.seq for row in listed(database)] == [2, 1]


@pytest.mark.parametrize(
    ("statement", "seq"),
    [
        ("UPDATE audit SET \"user\" = 'x' WHERE seq = 2", 2),
        ("DELETE FROM audit WHERE seq = 1", 1),
        ("DELETE FROM audit WHERE seq = 3", 3),
        ("DELETE FROM audit", 1),
        ("DELETE FROM audit_chains", 1),
        ("UPDATE audit_chains SET last_hash = 'x'", 3),
    ],
)
def test_a_change_behind_the_triggers_is_found_and_named(database: Database, statement: str, seq: int) -> None:
    written(database, *(entry(number, user="maria") for number in range(3)), entry(workspace="other"))
    assert AuditRows(database).verify() == ()
    forced(database, f"{statement} {'AND' if 'WHERE' in statement else 'WHERE'} workspace = '{WORKSPACE}'")
    [broken] = AuditRows(database).verify()
    assert (broken.workspace, broken.seq) == (WORKSPACE, seq)


@pytest.mark.parametrize("change", ["\"user\" = CAST('maria' AS {bytes})", "tokens = '7' || 'x'"])
def test_a_value_of_another_type_is_found_or_cannot_be(database: Database, change: str) -> None:
    written(database, entry(user="maria"))
    kind = {"SQLite": "blob", "PostgreSQL": "bytea"}[database.engine.name]
    with contextlib.suppress(*REFUSED):  # PostgreSQL has no values of another type
        forced(database, f"UPDATE audit SET {change.format(bytes=kind)}")
        assert [broken.seq for broken in AuditRows(database).verify()] == [1]
        return
    assert database.engine.name == "PostgreSQL"
    assert AuditRows(database).verify() == ()


@pytest.mark.parametrize("last", [0, 2])
def test_a_chain_that_is_emptied_or_cut_with_its_head_does_not_hold_beside_turns(database: Database, last: int) -> None:
    said(database, "s1", turns=3)
    assert AuditRows(database).verify() == ()
    forced(database, "UPDATE audit_chains SET last_seq = 2, last_hash = (SELECT hash FROM audit WHERE seq = 2)")
    forced(database, f"DELETE FROM audit_chains WHERE {last} = 0")
    forced(database, f"DELETE FROM audit WHERE seq > {last}")
    [broken] = AuditRows(database).verify()
    assert (broken.workspace, broken.why.split()[0]) == (WORKSPACE, str(3 - last))


def test_rows_that_are_too_old_go_and_the_rest_still_verifies(database: Database) -> None:
    rows = AuditRows(database)
    written(database, *(entry(number) for number in range(5)), entry(workspace="other"))
    assert rows.prune(before_ms=NOW_MS + 3) == 4
    assert [row.seq for row in listed(database)] == [5, 4]
    assert rows.verify() == ()
    assert rows.prune(before_ms=NOW_MS + 3) == 0
    assert rows.prune(before_ms=NOW_MS + 9) == 2
    assert rows.verify() == ()
    written(database, entry(9))
    assert [row.seq for row in listed(database)] == [6]
    assert rows.verify() == ()


def test_a_row_after_the_pruned_ones_that_is_removed_is_found(database: Database) -> None:
    written(database, *(entry(number) for number in range(4)))
    AuditRows(database).prune(before_ms=NOW_MS + 2)
    forced(database, "DELETE FROM audit WHERE seq = 3")
    [broken] = AuditRows(database).verify()
    assert broken.seq == 3


@pytest.mark.parametrize(
    ("where", "seqs"),
    [
        (AuditFilter(action="turn.ended"), [2]),
        (AuditFilter(user="maria"), [3, 1]),
        (AuditFilter(session_id="s1"), [2]),
        (AuditFilter(turn_id="turn_1"), [2]),
        (AuditFilter(agent="shop"), [2]),
        (AuditFilter(since_ms=NOW_MS + 2), [3, 2]),
        (AuditFilter(until_ms=NOW_MS + 2), [1]),
    ],
)
def test_each_filter_lets_its_rows_pass(database: Database, where: AuditFilter, seqs: list[int]) -> None:
    turn = entry(2, action="turn.ended", session_id="s1", turn_id="turn_1", agent="shop")
    written(database, entry(1, user="maria"), turn, entry(3, user="maria"), entry(4, workspace="other", user="maria"))
    assert [row.seq for row in listed(database, where)] == seqs


def test_a_user_sees_the_rows_of_this_user_alone(database: Database) -> None:
    written(database, entry(1, user="maria"), entry(2, user="john"), entry(3))
    page = AuditRows(database).page(WorkspaceUser(WORKSPACE, "maria"), ALL, limit=9, after=None)
    assert [row.seq for row in page.items] == [1]


def test_heads_name_the_last_row_of_each_workspace(database: Database) -> None:
    written(database, entry(1), entry(2), entry(workspace="other"))
    heads = AuditRows(database).heads()
    assert {name: head.seq for name, head in heads.items()} == {WORKSPACE: 2, "other": 1}
    assert heads[WORKSPACE].hash == listed(database)[0].hash


def test_processes_that_write_at_once_share_one_chain_without_gaps(database: Database, settings: Settings) -> None:
    others = [Database(settings.database_url, sync="normal") for _ in range(2)]

    def write(each: Database) -> None:
        for number in range(20):
            written(each, entry(number))

    at_once(write, (database, *others))
    assert [row.seq for row in listed(database)] == list(range(60, 0, -1))
    assert AuditRows(database).verify() == ()
    for each in others:
        each.close()


def test_a_claim_leaves_no_row(database: Database) -> None:
    claim = running(database)
    Claims(database).release(claim, run_ms=1)
    assert listed(database) == []
