"""What a session keeps of its agent: decided before the first request to a model, the same in every process."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from loom_worker.agents.load import LiveAgents
from loom_worker.agents.versions import RecordedAgents
from loom_worker.core.errors import ProviderFailed
from loom_worker.core.settings import Settings
from loom_worker.core.values.chat import ChatMessage, Request
from loom_worker.core.values.sessions import Choice, NewSession
from loom_worker.core.values.turns import Claim, NewTurn
from loom_worker.runtime.agents import AgentRegistry
from loom_worker.store.agent_versions import AgentVersions
from loom_worker.store.claims import Claims
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.sessions import Sessions
from loom_worker.store.submit import submit
from loom_worker.turn.agent_runtime import AgentRuntime
from tests.support.registry import made_registry

NOW_MS = 1_795_253_400_000


class Terms:
    """Whoever answers, it costs nothing."""

    def budget(self, agent: str) -> None:
        return None

    def has_price(self, agent: str, model: str | None, provider: str | None = None) -> bool:
        return True


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "agents").mkdir()
    return tmp_path / "agents"


@pytest.fixture
def started(settings: Settings, database: Database, folder: Path) -> Callable[..., AgentRegistry]:
    """The agents of a process that starts now, and so reads the files now."""

    def started(prompt: str, **settled: str) -> AgentRegistry:
        spec = {"name": "a", "system_prompt": prompt, "backend": False, "config": {"read_only": prompt == "old"}}
        (folder / "a.yaml").write_text(json.dumps({"agent": spec}))
        own = replace(settings, **settled)  # type: ignore[arg-type]  # fields of Settings
        pins = own.agent_pin == "session"
        recorded = RecordedAgents(LiveAgents(folder), AgentVersions(database), pins=pins)
        return made_registry(own, recorded, database)  # type: ignore[arg-type]  # any source of agents will do

    return started


Started = Callable[..., AgentRegistry]


def claim(database: Database, settings: Settings, session: str, agent: str = "a") -> Claim:
    new = NewSession(session, agent=agent)
    submit(database, settings.limits, ("acme", new), NewTurn("hello"), Terms(), now_ms=NOW_MS)
    lane = Sessions(database).get("acme", session).lane
    claimed = Claims(database).claim(lane, worker="w", now_ms=NOW_MS)
    assert isinstance(claimed, Claim)
    return claimed


def answering(registry: AgentRegistry, claimed: Claim) -> AgentRuntime:
    """The agent of a claimed turn, as a worker builds it."""
    kept = registry.keeping(claimed)
    return registry.runtime(kept.turn.agent, kept.choice, kept.turn.workspace)


def test_a_session_keeps_all_of_its_version_while_new_ones_get_the_next(
    settings: Settings, database: Database, started: Started
) -> None:
    first = claim(database, settings, "s")
    assert answering(started("old"), first).agent.system_prompt == "old"
    after = started("new")
    again = after.runtime("a", Sessions(database).get("acme", "s").choice, "acme")
    assert (again.agent.system_prompt, again.agent.version, again.agent.is_read_only) == ("old", "1", True)
    fresh = answering(after, claim(database, settings, "t"))
    assert (fresh.agent.system_prompt, fresh.agent.version, fresh.agent.is_read_only) == ("new", "1-2", False)
    assert after.runtime("a", Sessions(database).get("acme", "s").choice, "acme") is again
    assert after.runtime("a", Choice(version="1-2"), "acme") is after.runtime("a", Choice(), "acme")


def test_a_crash_and_an_edit_before_the_first_answer_change_nothing(
    settings: Settings, database: Database, started: Started
) -> None:
    first = claim(database, settings, "s")
    answering(started("old"), first)
    lane = first.turn.lane
    taken_over = Claims(database).claim(lane, worker="w2", now_ms=NOW_MS + 1)
    assert isinstance(taken_over, Claim)
    assert taken_over.choice.version == "1"
    assert answering(started("new"), taken_over).agent.system_prompt == "old"


def test_an_agent_without_a_file_and_one_of_a_workflow_keep_nothing(
    settings: Settings, database: Database, started: Started
) -> None:
    registry = started("old")
    for name in ("ghost", "flow:writer"):
        claimed = claim(database, settings, name.replace(":", "-"), agent=name)
        assert registry.keeping(claimed) is claimed


def test_where_nothing_is_kept_a_session_follows_the_file(
    settings: Settings, database: Database, started: Started
) -> None:
    first = claim(database, settings, "s")
    assert answering(started("old", agent_pin="none"), first).agent.system_prompt == "old"
    with database.write(lock=WHOLE) as tx:
        tx.exec_driver_sql("UPDATE sessions SET agent_version = '1'")
    choice = Sessions(database).get("acme", "s").choice
    assert started("new", agent_pin="none").runtime("a", choice, "acme").agent.system_prompt == "new"


def test_a_session_whose_version_is_refused_says_so_and_how_to_move_it(started: Started) -> None:
    runtime = started("old").runtime("a", Choice(version="7"), "acme")
    with pytest.raises(ProviderFailed, match=r"no version '7' of it; move the session.*a@latest"):
        list(runtime.model.reply(Request("", (ChatMessage("user", "?"),))))
    assert runtime.agent.version == "7"
