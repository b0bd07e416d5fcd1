"""A workspace's rule deletes the sessions that nobody used for so long, and no others; the audit says so."""

import pytest

from loom_worker.core.settings_tree import RetentionSettings
from loom_worker.core.values.audit import AuditFilter
from loom_worker.core.values.sessions import NewSession
from loom_worker.store.audit import AuditRows
from loom_worker.store.database import Database
from loom_worker.store.journal import Journal
from loom_worker.store.retention import DAY_MS, SESSIONS, IdleSessions, Retention
from loom_worker.store.sessions import Sessions
from loom_worker.store.workspaces import Workspaces
from tests.unit.store.made import NOW_MS, WORKSPACE, delivery, final, running, said, submitted

LATER_MS = NOW_MS + 30 * DAY_MS + 1_000


@pytest.fixture
def ruled(database: Database) -> Database:
    Workspaces(database).patch(WORKSPACE, {"retention": {"days": 30}}, now_ms=NOW_MS)
    return database


def left(database: Database, workspace: str = WORKSPACE) -> list[str]:
    return sorted(each.id for each in Sessions(database).page(workspace, limit=99, after=None).items)


def swept(database: Database, now_ms: int, *, days: int = 0) -> None:
    Retention(database, RetentionSettings(conversation_days=days)).once(now_ms)


def test_a_session_goes_its_days_after_it_was_last_used_and_leaves_a_row(ruled: Database) -> None:
    said(ruled, turns=1)
    said(ruled, workspace="other", turns=1)
    swept(ruled, LATER_MS - DAY_MS)
    assert left(ruled) == ["s1"]
    swept(ruled, LATER_MS)
    assert (left(ruled), left(ruled, "other")) == ([], ["s1"])
    row = AuditRows(ruled).page(WORKSPACE, AuditFilter(), limit=1, after=None).items[0].entry
    assert (row.action, row.key_id, row.session_id) == ("session.deleted", "retention", "s1")


def test_a_session_that_still_has_something_to_do_stays(ruled: Database) -> None:
    submitted(ruled, "open")
    claim = running(ruled, "hook")
    Journal(ruled).finish(claim, final(delivery=delivery(1, claim)))
    swept(ruled, LATER_MS)
    assert left(ruled) == ["hook", "open"]


def test_without_a_rule_nothing_goes(database: Database) -> None:
    said(database, turns=1)
    swept(database, NOW_MS + 9_999 * DAY_MS)
    assert left(database) == ["s1"]
    Workspaces(database).patch(WORKSPACE, {"retention": {"days": 30}}, now_ms=NOW_MS)
    Workspaces(database).patch(WORKSPACE, {"retention": None}, now_ms=NOW_MS)
    swept(database, NOW_MS + 9_999 * DAY_MS)
    assert left(database) == ["s1"]


@pytest.mark.parametrize(("days", "remaining"), [(10, []), (90, ["s1"])])
def test_the_setting_counts_where_it_is_shorter(ruled: Database, days: int, remaining: list[str]) -> None:
    said(ruled, turns=1)
    swept(ruled, NOW_MS + 20 * DAY_MS, days=days)
    assert left(ruled) == remaining


def test_all_sessions_are_looked_at_in_steps(ruled: Database) -> None:
    for number in range(SESSIONS + 3):
        Sessions(ruled).create(WORKSPACE, NewSession(id=f"s{number}"), now_ms=NOW_MS)
    idle = IdleSessions(ruled)
    after = idle.remove_some("", LATER_MS)
    assert (bool(after), len(left(ruled))) == (True, 3)
    assert idle.remove_some(after, LATER_MS) == ""
    assert left(ruled) == []
