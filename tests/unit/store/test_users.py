"""What belongs to a user is found over all tables, deleted in steps, and a deletion that was broken off goes on."""

import pytest
from sqlalchemy import select

from loom_worker.core.errors import Fenced
from loom_worker.core.values.api_keys import ApiKey
from loom_worker.core.values.audit import AuditFilter
from loom_worker.core.values.sessions import NewSession
from loom_worker.core.values.tenants import Actor, WorkspaceUser
from loom_worker.store.api_keys import KeyRows
from loom_worker.store.audit import AuditRows
from loom_worker.store.database import Database
from loom_worker.store.journal import Journal
from loom_worker.store.sessions import Sessions
from loom_worker.store.tables import user_deletions
from loom_worker.store.users import SESSIONS, Users
from tests.unit.store.made import NOW_MS, WORKSPACE, final, running

MARIA, JOHN = WorkspaceUser(WORKSPACE, "maria"), WorkspaceUser(WORKSPACE, "john")
BY = Actor("key_admin")


def key_of(who: WorkspaceUser, number: int = 1, **fields: int) -> ApiKey:
    return ApiKey(f"key_{who.user}{number}", WORKSPACE, "her phone", "loom_a", ("chat",), NOW_MS, who.user, **fields)


def session_of(database: Database, who: WorkspaceUser, name: str) -> None:
    Sessions(database).create(who, NewSession(id=name), now_ms=NOW_MS)


def done(database: Database, who: WorkspaceUser = MARIA) -> tuple[int, int, int]:
    users = Users(database)
    users.begin(who, BY, now_ms=NOW_MS)
    while users.delete_some(who, now_ms=NOW_MS):
        pass
    found = users.progress(who)
    assert found is not None
    users.finish(who, now_ms=NOW_MS)
    return found.sessions, found.turns, found.keys


def actions(database: Database) -> list[str]:
    page = AuditRows(database).page(WORKSPACE, AuditFilter(), limit=99, after=None)
    return [row.entry.action for row in reversed(page.items)]


def test_sessions_turns_and_keys_of_the_user_go_and_those_of_others_stay(database: Database) -> None:
    for who, name in ((MARIA, "s1"), (MARIA, "s2"), (JOHN, "s3")):
        session_of(database, who, name)
        Journal(database).finish(running(database, name), final())
        running(database, name)
    keys = KeyRows(database)
    for key, digest in ((key_of(MARIA), "1"), (key_of(MARIA, 2, revoked_ms=1), "2"), (key_of(JOHN), "3")):
        keys.add(key, digest * 64)
    assert done(database) == (2, 4, 1)
    assert [each.id for each in Sessions(database).page(WORKSPACE, limit=9, after=None).items] == ["s3"]
    stored = {key.id: (key.name, key.revoked_ms) for key in keys.page(WORKSPACE, limit=9, after=None).items}
    assert stored == {"key_maria1": ("", NOW_MS), "key_maria2": ("", 1), "key_john1": ("her phone", None)}
    assert AuditRows(database).verify() == ()


def test_the_audit_says_what_was_deleted_and_by_whom(database: Database) -> None:
    session_of(database, MARIA, "s1")
    running(database)
    done(database)
    assert actions(database) == ["turn.ended", "session.deleted", "user.deleted"]
    last = AuditRows(database).page(WORKSPACE, AuditFilter(action="user.deleted"), limit=1, after=None).items[0].entry
    assert (last.key_id, last.subject) == ("key_admin", "maria")
    assert {one["name"]: one["outcome"] for one in last.decisions} == {"sessions": 1, "turns": 1, "keys": 0}


def test_a_turn_that_runs_writes_nothing_after_its_user_is_deleted(database: Database) -> None:
    session_of(database, MARIA, "s1")
    claim = running(database)
    done(database)
    with pytest.raises(Fenced):
        Journal(database).finish(claim, final())


def test_a_user_of_whom_revoked_keys_are_left_is_found_by_their_names(database: Database) -> None:
    KeyRows(database).add(key_of(MARIA, revoked_ms=1), "1" * 64)
    assert done(database) == (0, 0, 0)
    assert [key.name for key in KeyRows(database).page(WORKSPACE, limit=9, after=None).items] == [""]


def test_a_deletion_that_was_broken_off_is_found_and_goes_on(database: Database) -> None:
    for number in range(SESSIONS + 5):
        session_of(database, MARIA, f"s{number}")
    users = Users(database)
    users.begin(MARIA, BY, now_ms=NOW_MS)
    assert len(users.delete_some(MARIA, now_ms=NOW_MS)) == SESSIONS
    assert users.unfinished(asked_before_ms=NOW_MS, limit=9) == ()
    assert users.unfinished(asked_before_ms=NOW_MS + 1, limit=9) == (MARIA,)
    assert done(database) == (SESSIONS + 5, 0, 0)
    assert users.unfinished(asked_before_ms=NOW_MS + 1, limit=9) == ()
    with database.read() as tx:
        assert tx.execute(select(user_deletions)).all() == []


def test_a_deletion_does_not_end_before_a_session_that_was_made_meanwhile(database: Database) -> None:
    session_of(database, MARIA, "s1")
    users = Users(database)
    users.begin(MARIA, BY, now_ms=NOW_MS)
    users.delete_some(MARIA, now_ms=NOW_MS)
    session_of(database, MARIA, "s2")
    users.finish(MARIA, now_ms=NOW_MS)
    assert users.unfinished(asked_before_ms=NOW_MS + 1, limit=9) == (MARIA,)


def test_the_turns_that_were_stopped_are_known_until_the_end(database: Database) -> None:
    session_of(database, MARIA, "s1")
    Journal(database).finish(running(database), final())
    stopped = running(database).turn.id
    users = Users(database)
    users.begin(MARIA, BY, now_ms=NOW_MS)
    users.delete_some(MARIA, now_ms=NOW_MS)
    assert users.stopped_turns(MARIA) == (stopped,)
    users.finish(MARIA, now_ms=NOW_MS)
    assert users.stopped_turns(MARIA) == ()
