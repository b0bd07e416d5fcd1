"""What clients may know of a session's window before any model is asked."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loom_worker.agents.load import Agents
from loom_worker.core.errors import Invalid, NotFound
from loom_worker.core.settings import Settings
from loom_worker.core.values.agents import Agent
from loom_worker.core.values.chat import ChatMessage
from loom_worker.core.values.memory import MemoryPolicy
from loom_worker.core.values.sessions import NewSession, SessionPatch
from loom_worker.core.values.tiers import MemoryTiers
from loom_worker.service.context_report import ContextReport
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE
from tests.support.registry import made_components
from tests.unit.store import made
from tests.unit.store.facts_made import states

BARE = Agent("default", backend=None, patterns_enabled=False, system_prompt="You help.", max_context_tokens=20_000)
SMALL = replace(BARE, name="small", max_context_tokens=4_000, memory=MemoryPolicy(has_swap=False))
TINY = replace(BARE, name="tiny", max_context_tokens=600, system_prompt="You help. " * 300)
TIERED = replace(BARE, name="tiered", tiers=MemoryTiers())
HUGE = replace(BARE, name="huge", max_context_tokens=1_000_000)


@pytest.fixture
def context_report(settings: Settings, database: Database, tmp_path: Path) -> Iterator[ContextReport]:
    agents = Agents({agent.name: agent for agent in (BARE, SMALL, TINY, TIERED, HUGE)}, ())
    fitted = made_components(settings, agents, database)
    yield ContextReport.at(fitted.registry, fitted.knowledge, database)
    fitted.close()


def test_the_layers_of_a_session_are_shown_with_their_shares(context_report: ContextReport, database: Database) -> None:
    made.said(database, turns=3)
    shown = context_report.context(made.WORKSPACE, "s1")
    assert shown["layers"]["l1"]["messages"] == 6
    assert shown["used_tokens"] == sum(layer["tokens"] for layer in shown["layers"].values())
    assert shown["input_budget_tokens"] == 18_000
    assert 0 < shown["layers"]["tools"]["share"] < 0.2
    with pytest.raises(NotFound):
        context_report.context("other", "s1")


def test_tokens_are_shown_as_the_provider_counts_them(context_report: ContextReport, database: Database) -> None:
    made.said(database, turns=3)
    before = context_report.context(made.WORKSPACE, "s1")["used_tokens"]
    with database.write(lock=WHOLE) as tx:
        tx.exec_driver_sql("UPDATE sessions SET token_correction = 0.5")
    assert context_report.context(made.WORKSPACE, "s1")["used_tokens"] == pytest.approx(before / 2, rel=0.05)


def test_a_window_that_holds_no_turn_is_shown_all_the_same(context_report: ContextReport, database: Database) -> None:
    context_report.sessions.create(made.WORKSPACE, NewSession("s1", agent="tiny"), now_ms=1)
    shown = context_report.context(made.WORKSPACE, "s1")
    assert shown["used_tokens"] > shown["input_budget_tokens"]


@pytest.mark.parametrize(
    ("agent", "text", "fits"),
    [
        ("default", "word " * 1_000, True),
        ("default", "wörd " * 10_000, False),
        ("small", "word " * 200, True),
        ("small", "鯨" * 1_500, False),
        ("huge", "word " * 10_000, True),
    ],
)
def test_a_message_that_can_never_be_sent_is_refused_with_what_is_free(
    context_report: ContextReport, agent: str, text: str, fits: bool
) -> None:
    if fits:
        context_report.check_fits(made.WORKSPACE, "new", agent, ChatMessage("user", text))
        return
    with pytest.raises(Invalid) as caught:
        context_report.check_fits(made.WORKSPACE, "new", agent, ChatMessage("user", text))
    assert caught.value.slug == "message-too-large"


def test_a_message_is_held_against_the_window_of_its_session_s_agent_whoever_is_named(
    context_report: ContextReport,
) -> None:
    context_report.sessions.create(made.WORKSPACE, NewSession("s1", agent="small"), now_ms=1)
    with pytest.raises(Invalid) as caught:
        context_report.check_fits(made.WORKSPACE, "s1", "huge", ChatMessage("user", "鯨" * 1_500))
    assert caught.value.slug == "message-too-large"


def test_a_kernel_larger_than_its_share_is_refused(context_report: ContextReport) -> None:
    context_report.check_kernel("default", {"goals": ["sell tea"]})
    with pytest.raises(Invalid, match="its share"):
        context_report.check_kernel("default", {"goals": ["sell tea " * 2_000]})


def test_l2_is_bounded_by_its_share_and_by_its_most_tokens(context_report: ContextReport, database: Database) -> None:
    registry: Any = context_report.agents
    for name, agent, expected in (("a", "default", 1_800), ("b", "huge", 5_000)):
        session = context_report.sessions.create(made.WORKSPACE, NewSession(name, agent=agent), now_ms=1)
        rules = registry.compression(session)
        assert rules.l2_tokens == expected
        told = registry.compression(replace(session, rom="Be kind. " * 100, kernel={"goals": ["sell tea"]}))
        assert told.l1.beside(1).left_tokens < rules.l1.left_tokens - 200


def test_another_database_makes_the_system_text_anew(context_report: ContextReport, database: Database) -> None:
    made.said(database, turns=1)
    with database.write(lock=WHOLE) as tx:
        tx.exec_driver_sql("UPDATE sessions SET rom = 'old', agent_version = '1'")
        tx.exec_driver_sql("INSERT INTO memory (lane, schemas) SELECT lane, '[1]' FROM sessions")
    context_report.sessions.patch(made.WORKSPACE, "s1", SessionPatch(backend="other.db"), now_ms=2)
    session = context_report.sessions.get(made.WORKSPACE, "s1")
    assert (session.rom, session.agent_version) == (None, "1")
    assert context_report.memories.load(session.lane, limit=1).state.schemas == ()


def test_what_a_session_has_beyond_its_context_is_shown_for_agents_with_tiers(
    context_report: ContextReport, database: Database
) -> None:
    for name, agent in (("plain", "default"), ("s1", "tiered")):
        context_report.sessions.create(made.WORKSPACE, NewSession(name, agent=agent, user="maria"), now_ms=1)
        lane = made.said(database, name, turns=2)
        states(database, lane, "user|likes|tea")
    with database.write(lock=WHOLE) as tx:
        last_n = tx.exec_driver_sql("SELECT max(n) FROM messages").scalar_one()
        tx.exec_driver_sql("INSERT INTO memory (lane, first_n, dated_n) VALUES (?, ?, ?)", (lane, last_n, last_n - 2))
    assert context_report.context(made.WORKSPACE, "plain")["tiers"] is None
    assert context_report.context(made.WORKSPACE, "s1")["tiers"] == {
        "summaries": 0,
        "summarized_messages": 0,
        "summarized_until": None,
        "waiting_messages": 1,
        "scope": "user",
        "open_facts": 1,
    }
