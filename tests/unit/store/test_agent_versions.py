"""Versions on a real file: stored once, labelled, kept by sessions."""

import threading
from collections.abc import Callable

import pytest

from loom_worker.core.errors import Invalid
from loom_worker.core.settings import Settings
from loom_worker.core.values.agent_versions import ActivationRequest, AgentVersion, seen
from loom_worker.core.values.audit import AuditFilter
from loom_worker.core.values.sessions import NewSession, SessionPatch
from loom_worker.store.agent_versions import AgentVersions
from loom_worker.store.audit import AuditRows
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.sessions import Sessions

NOW_MS = 1_795_253_400_000
ACME, OTHER = "acme", "other"


@pytest.fixture
def versions(database: Database) -> AgentVersions:
    return AgentVersions(database)


@pytest.fixture
def record(versions: AgentVersions) -> Callable[..., tuple[AgentVersion, ...]]:
    """Store an agent as one process does that has just read it."""

    def record(prompt: str, declared: str = "1", agent: str = "a") -> tuple[AgentVersion, ...]:
        raw = {"agent": {"name": agent, "version": declared, "system_prompt": prompt}}
        return versions.record([seen(agent, declared, raw)], versions.newest(), now_ms=NOW_MS)

    return record


Record = Callable[..., tuple[AgentVersion, ...]]


def names(versions: AgentVersions, workspace: str = ACME, agent: str = "a") -> list[str]:
    return [each.version for each in versions.page(workspace, agent, limit=50, after=None).items]


def a_lane(database: Database, name: str, workspace: str = ACME, agent: str = "a") -> str:
    return Sessions(database).create(workspace, NewSession(name, agent=agent), now_ms=NOW_MS).lane


def kept_by(database: Database, name: str, workspace: str = ACME) -> tuple[str | None, str | None]:
    session = Sessions(database).get(workspace, name)
    return session.agent_version, session.rom


def test_each_change_is_one_version_also_the_way_back(versions: AgentVersions, record: Record) -> None:
    assert [len(record(prompt)) for prompt in ("one", "one", "two", "one")] == [1, 0, 1, 1]
    record("three", declared="2")
    assert names(versions) == ["2", "1-3", "1-2", "1"]
    assert [each.n for each in versions.page(ACME, "a", limit=9, after=None).items] == [4, 3, 2, 1]


def test_many_processes_that_notice_a_change_store_one_version_and_one_row_of_the_audit(
    settings: Settings, record: Record
) -> None:
    record("one")
    stored: list[AgentVersion] = []
    start = threading.Barrier(6)

    def notice() -> None:
        database = Database(settings.database_url)
        own = AgentVersions(database)
        known = own.newest()
        start.wait()
        stored.extend(own.record([seen("a", "1", {"agent": {"name": "a"}})], known, now_ms=NOW_MS))
        database.close()

    threads = [threading.Thread(target=notice) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    database = Database(settings.database_url)
    assert [each.version for each in stored] == ["1-2"]
    assert names(AgentVersions(database)) == ["1-2", "1"]
    where = AuditFilter(action="agent.updated")
    rows = AuditRows(database).page("default", where, limit=9, after=None).items
    assert [(row.entry.subject, row.entry.agent, row.entry.key_id) for row in rows] == [("1-2", "a", "file")]
    assert AuditRows(database).verify() == ()
    database.close()


def test_who_read_before_another_version_was_stored_stores_nothing(versions: AgentVersions, record: Record) -> None:
    record("one")
    known = versions.newest()
    record("two")
    assert versions.record([seen("a", "1", {"agent": {"old": True}})], known, now_ms=NOW_MS) == ()


def test_a_session_keeps_the_version_that_was_newest_when_it_began(
    database: Database, versions: AgentVersions, record: Record
) -> None:
    record("one")
    lane = a_lane(database, "s")
    assert versions.keep("a", lane) == "1"
    record("two")
    assert versions.keep("a", lane) == "1"
    assert kept_by(database, "s") == ("1", None)
    assert versions.keep("a", a_lane(database, "t")) == "1-2"
    assert versions.keep("ghost", a_lane(database, "u")) is None
    assert versions.keep("a", "no such lane") is None


def test_labels_steer_new_sessions_of_their_workspace_alone(
    database: Database, versions: AgentVersions, record: Record
) -> None:
    record("one")
    record("two")
    active, moved = versions.activate(ACME, "a", ActivationRequest("1"), now_ms=NOW_MS)
    assert (active.version, active.labels, active.is_active, moved) == ("1", ("production",), True, 0)
    assert versions.keep("a", a_lane(database, "s")) == "1"
    assert versions.keep("a", a_lane(database, "s", OTHER)) == "1-2"
    canary = ActivationRequest("1-2", label="canary", share=1.0)
    versions.activate(ACME, "a", canary, now_ms=NOW_MS)
    assert versions.keep("a", a_lane(database, "t")) == "1-2"
    assert versions.get(ACME, "a", "canary").version == "1-2"
    versions.activate(ACME, "a", ActivationRequest("latest", label="canary"), now_ms=NOW_MS)
    assert versions.keep("a", a_lane(database, "u")) == "1"
    followed, _ = versions.activate(ACME, "a", ActivationRequest("latest"), now_ms=NOW_MS)
    assert (followed.version, followed.labels, followed.is_active) == ("1-2", (), True)
    assert versions.keep("a", a_lane(database, "v")) == "1-2"
    rows = AuditRows(database).page(ACME, AuditFilter(action="agent.activated"), limit=9, after=None).items
    assert [row.entry.subject for row in rows] == ["1-2", "1-2", "1-2", "1"]


def test_an_activation_for_all_sessions_moves_those_of_the_workspace_in_one_step(
    database: Database, versions: AgentVersions, record: Record
) -> None:
    record("one")
    record("two")
    for name in ("s", "t", "new"):
        a_lane(database, name)
    a_lane(database, "s", OTHER)
    a_lane(database, "b", agent="b")
    with database.write(lock=WHOLE) as tx:
        tx.exec_driver_sql("UPDATE sessions SET agent_version = '1-2', rom = 'text' WHERE id != 'new'")
        tx.exec_driver_sql("UPDATE sessions SET agent_version = '1' WHERE id = 't'")
    _, moved = versions.activate(ACME, "a", ActivationRequest("1", repins=True), now_ms=NOW_MS)
    assert moved == 2
    assert (kept_by(database, "s"), kept_by(database, "new")) == (("1", None), ("1", None))
    assert kept_by(database, "t") == ("1", "text")
    assert (kept_by(database, "s", OTHER), kept_by(database, "b")) == (("1-2", "text"), ("1-2", "text"))


def test_what_a_session_moves_to_is_named_by_version_label_or_as_the_latest(
    database: Database, versions: AgentVersions, record: Record
) -> None:
    record("one")
    record("two")
    assert versions.resolved(ACME, "a", "latest") is None
    assert versions.resolved(ACME, "a", "1") == "1"
    versions.activate(ACME, "a", ActivationRequest("1"), now_ms=NOW_MS)
    assert versions.resolved(ACME, "a", "production") == "1"
    assert versions.resolved(ACME, "a", "latest") == "1-2"
    for name in ("9", "canary"):
        with pytest.raises(Invalid, match=name):
            versions.resolved(ACME, "a", name)
    a_lane(database, "s")
    patch = SessionPatch(agent="a@production", version="1")
    assert Sessions(database).patch(ACME, "s", patch, now_ms=NOW_MS).agent_version == "1"
