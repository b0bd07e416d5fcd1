"""Agents that follow their files, and sessions' versions of them, on a real database."""

import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from loom_worker.agents.known import KnownAgents
from loom_worker.agents.load import LiveAgents
from loom_worker.agents.versions import RecordedAgents
from loom_worker.core.errors import BadFile
from loom_worker.core.live_files import LOOK_S, SETTLE_S
from loom_worker.core.settings import from_env
from loom_worker.core.values.agents import Agent
from loom_worker.demo.workflows import shipped_workflows
from loom_worker.store.agent_versions import AgentVersions
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.prepare import prepare
from loom_worker.workflows.load import LiveWorkflows
from tests.support.clock import Clock


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "agents").mkdir()
    return tmp_path / "agents"


@pytest.fixture
def database(tmp_path: Path) -> Database:
    (tmp_path / "home").mkdir()
    settings = from_env({"LOOM_HOME": str(tmp_path / "home")})
    prepare(settings)
    return Database(settings.database_url)


@pytest.fixture
def write(folder: Path, clock: Clock) -> Callable[..., None]:
    """Write an agent's file, and let it settle."""

    def write(prompt: str, more: str = "") -> None:
        path = folder / "a.yaml"
        path.write_text(f"agent: {{name: a, system_prompt: {prompt}{more}}}\n", encoding="utf-8")
        os.utime(path, (clock.now_s, clock.now_s))
        clock.now_s += SETTLE_S + LOOK_S

    return write


Write = Callable[..., None]


def recorded(folder: Path, database: Database, clock: Clock, *, pins: bool = True) -> RecordedAgents:
    live = LiveAgents(folder, clock=clock)
    return RecordedAgents(live, AgentVersions(database), pins=pins, now_ms=lambda: 1)


def is_as(agent: Agent | None, version: str, prompt: str) -> bool:
    assert agent is not None
    return (agent.version, agent.system_prompt) == (version, prompt)


def test_an_edit_is_a_version_and_who_keeps_the_former_one_has_all_of_it(
    folder: Path, database: Database, clock: Clock, write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "loom_worker.agents.versions")
    write("one", ", tools: [add], guardrails: {}, temperature: 3")
    agents = recorded(folder, database, clock)
    first = agents.current("a").agents["a"]
    assert is_as(first, "1", "one")
    write("two")
    assert is_as(agents.current("a").agents["a"], "1-2", "two")
    kept = agents.kept("a", "1")
    assert is_as(kept, "1", "one")
    assert kept is not None
    assert (kept.tools, kept.raw, kept.source) == (("add",), first.raw, first.source)
    assert kept.unknown_keys == first.unknown_keys
    assert agents.kept("a", "1") is kept
    assert agents.kept("a", None) is agents.kept("a", "1-2") is agents.current("a").agents["a"]
    told = [(line.getMessage(), getattr(line, "version", "")) for line in caplog.records]
    assert told.count(("agent.updated", "1-2")) == 1
    assert ("agent.added", "1") in told


def test_what_one_process_stored_the_next_one_takes_up_without_storing_it_again(
    folder: Path, database: Database, clock: Clock, write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    write("one")
    first = recorded(folder, database, clock)
    first.current()
    second = recorded(folder, database, clock)
    assert is_as(second.current("a").agents["a"], "1", "one")
    write("two")
    caplog.set_level(logging.INFO, "loom_worker.agents.versions")
    assert all(is_as(each.current("a").agents["a"], "1-2", "two") for each in (first, second))
    assert [line.getMessage() for line in caplog.records] == ["agent.updated"]


def test_a_process_that_read_the_file_before_an_edit_that_others_stored_reads_it_anew(
    folder: Path, database: Database, clock: Clock, write: Write
) -> None:
    write("one")
    recorded(folder, database, clock).current()
    slow = recorded(folder, database, clock)  # has read the first text, and stored nothing yet
    write("two")
    clock.now_s -= LOOK_S + SETTLE_S / 2  # so that the slow one looks at nothing by itself
    clock.now_s += LOOK_S / 4
    fast = recorded(folder, database, clock)
    fast.current()
    assert is_as(slow.current("a").agents["a"], "1-2", "two")
    assert [each.version for each in AgentVersions(database).page("x", "a", limit=9, after=None).items] == ["1-2", "1"]


def test_an_agent_that_did_not_change_is_the_same_object_after_another_one_did(
    folder: Path, database: Database, clock: Clock, write: Write
) -> None:
    write("one")
    agents = recorded(folder, database, clock)
    default = agents.current().agents["default"]
    write("two")
    assert agents.current("a").agents["default"] is default


def test_a_version_that_this_loom_refuses_or_does_not_have_is_named_with_a_way_out(
    folder: Path, database: Database, clock: Clock, write: Write
) -> None:
    write("one")
    agents = recorded(folder, database, clock)
    agents.current()
    with database.write(lock=WHOLE) as tx:
        bad = '{"agent": {"name": "a", "tools": 7}}'
        tx.exec_driver_sql(f"INSERT INTO agent_versions VALUES ('a', 9, 'bad', 'x', '{bad}', 'file', 1)")
    with pytest.raises(BadFile, match=r"refuses its version 'bad': agent.tools.*loom agents activate a"):
        agents.kept("a", "bad")
    with pytest.raises(BadFile, match=r"no version 'gone'.*a@latest"):
        agents.kept("a", "gone")


def test_an_agent_whose_file_is_gone_is_gone_in_all_versions(
    folder: Path, database: Database, clock: Clock, write: Write
) -> None:
    write("one")
    agents = recorded(folder, database, clock)
    agents.current()
    (folder / "a.yaml").unlink()
    clock.now_s += LOOK_S
    assert agents.kept("a", "1") is None


def test_where_sessions_keep_no_version_all_of_them_follow_the_file(
    folder: Path, database: Database, clock: Clock, write: Write
) -> None:
    write("one")
    agents = recorded(folder, database, clock, pins=False)
    agents.current()
    write("two")
    assert is_as(agents.kept("a", "1"), "1-2", "two")


def test_without_a_database_agents_are_as_their_files_say(
    folder: Path, database: Database, clock: Clock, write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    write("one")
    agents = recorded(folder, database, clock)
    with database.write(lock=WHOLE) as tx:
        tx.exec_driver_sql("ALTER TABLE agent_versions RENAME TO away")
    for _ in range(2):
        assert is_as(agents.current("a").agents["a"], "1", "one")
    assert [line for line in caplog.messages if "cannot be stored" in line][1:] == []
    with database.write(lock=WHOLE) as tx:
        tx.exec_driver_sql("ALTER TABLE away RENAME TO agent_versions")
    agents.current("a")
    assert "a" in AgentVersions(database).newest()


def test_agents_of_workflows_follow_their_files(folder: Path, database: Database, clock: Clock, write: Write) -> None:
    write("one")
    workflows = LiveWorkflows(shipped_workflows())
    known = KnownAgents(recorded(folder, database, clock), workflows)
    inline = next(
        (name for found in [workflows.current().workflows] for each in found.values() for name in each.agents), ""
    )
    assert known.kept("a", "1") is known.kept("a", None)
    assert known.kept(inline, "7") is known.find(inline)
    assert not any(":" in name for name in AgentVersions(database).newest())
