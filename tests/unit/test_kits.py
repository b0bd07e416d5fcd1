"""Agents with everything in their hands; a broken one says so and stops nobody."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from loom_worker.agents.load import Agents, load
from loom_worker.backends.shop import ensure
from loom_worker.errors import ProviderFailed
from loom_worker.kits import Kits
from loom_worker.llm.retry import Retrying
from loom_worker.llm.scripted import Scripted
from loom_worker.settings import LlmSettings, Settings
from loom_worker.store.database import Database
from loom_worker.turn.loom import Kit
from loom_worker.values.agents import Agent, Compressor
from loom_worker.values.chat import ChatMessage, Request, ToolSpec, ToolUse
from loom_worker.values.memory import MemoryPolicy
from loom_worker.values.sessions import Choice

MEMORY = {"update_session_context", "recall_conversation", "search_conversation", "clear_recalled_context"}
QUESTION = "Who are my top 5 customers by revenue?"


@pytest.fixture(scope="module")
def shop_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("shop") / "shop.db"
    ensure(path, today=date(2026, 1, 31))
    return f"sqlite:///{path}"


@pytest.fixture
def kits(settings: Settings, shop_url: str, database: Database) -> Iterator[Kits]:
    kits = Kits(replace(settings, backend_url=shop_url), load(None), database)
    yield kits
    kits.close()


def with_agent(settings: Settings, agent: Agent) -> Kits:
    return Kits(settings, Agents({agent.name: agent}, ()), Database(settings.database_url))


def words_of(kit: Kit) -> str:
    """What a kit's model says when it is asked."""
    with pytest.raises(ProviderFailed) as caught:
        list(kit.model.reply(Request("", (ChatMessage("user", "?"),))))
    return str(caught.value)


def test_the_default_agent_has_tools_a_schema_and_a_model(kits: Kits) -> None:
    kit = kits.kit("default")
    own = {"list_tables", "get_schema", "execute_sql", "load_pattern"}
    assert own | MEMORY == {spec.name for spec in kit.specs}
    assert "orders" in kit.schema
    assert isinstance(kit.model, Scripted)


def test_a_kit_is_built_once_for_each_agent_and_model(kits: Kits) -> None:
    assert kits.kit("default") is kits.kit("default")
    assert kits.kit("default", Choice(model="other-model")) is not kits.kit("default")


def test_the_model_of_an_agent_that_is_gone_says_which_is_missing(kits: Kits) -> None:
    kit = kits.kit("ghost")
    assert "no agent 'ghost'" in words_of(kit)
    assert kit.specs == ()


@pytest.mark.parametrize("url", ["nonsense", "nosuch://host/db"])
def test_an_agent_with_a_backend_that_cannot_be_says_so_with_its_first_call(settings: Settings, url: str) -> None:
    kit = with_agent(settings, Agent("broken", backend_url=url)).kit("broken")
    assert "'broken' cannot work" in words_of(kit)


def test_a_database_that_is_away_is_told_in_place_of_its_schema(settings: Settings, tmp_path: Path) -> None:
    kit = with_agent(settings, Agent("a", backend_url=f"sqlite:///{tmp_path}/none.db")).kit("a")
    assert "cannot be read now" in kit.schema


def test_the_window_is_shared_between_what_is_sent_and_what_is_answered(settings: Settings) -> None:
    kit = with_agent(settings, Agent("a", has_backend=False, max_context_tokens=10_000, max_tokens=9_999)).kit("a")
    assert kit.input_budget_tokens + kit.max_tokens == 10_000
    own = with_agent(settings, Agent("b", has_backend=False, reserved_output_tokens=500, max_tokens=100)).kit("b")
    assert (own.input_budget_tokens, own.max_tokens) == (settings.llm.max_context_tokens - 500, 100)


def test_an_agent_without_data_and_patterns_has_the_tools_of_its_memory_alone(settings: Settings) -> None:
    agent = Agent("bare", has_backend=False, patterns_enabled=False)
    kit = with_agent(settings, agent).kit("bare")
    assert ({spec.name for spec in kit.specs}, kit.schema) == (MEMORY, "")


def names(specs: Iterable[ToolSpec]) -> set[str]:
    return {spec.name for spec in specs}


def test_an_agent_has_the_tools_it_may_use_and_those_of_its_memory(kits: Kits, settings: Settings) -> None:
    agent = Agent("narrow", tools=("execute_sql", "not_there"))
    assert names(with_agent(settings, agent).tools("narrow")) == {"execute_sql"} | MEMORY
    assert names(with_agent(settings, agent).kit("narrow").specs) == {"execute_sql"} | MEMORY


def test_an_agent_without_swap_cannot_look_for_what_left_its_context(settings: Settings) -> None:
    agent = Agent("forgetful", tools=(), memory=MemoryPolicy(has_swap=False))
    assert names(with_agent(settings, agent).kit("forgetful").specs) == {"update_session_context"}


def test_a_session_may_choose_fewer_tools(settings: Settings) -> None:
    kit = with_agent(settings, Agent("a")).kit("a", Choice(tools=("execute_sql",)))
    assert names(kit.specs) == {"execute_sql"} | MEMORY
    assert kit.registry.flaw(ToolUse("t", "list_tables", {}), kit.allowed) is not None


def test_a_session_may_choose_another_database_of_the_same_server(
    settings: Settings, tmp_path: Path, shop_url: str
) -> None:
    agent = Agent("a", backend_url=f"sqlite:///{tmp_path}/none.db", databases=(shop_url.removeprefix("sqlite:///"),))
    kits = with_agent(settings, agent)
    assert "orders" not in kits.kit("a").schema
    assert "orders" in kits.kit("a", Choice(backend=agent.databases[0])).schema


def test_summaries_are_written_by_the_compressor_of_the_agent(settings: Settings) -> None:
    llm = LlmSettings(provider="anthropic", model="claude-sonnet-4-5", api_key="sk-none")
    small = Compressor(model="claude-haiku-4-5", max_context_tokens=50_000)
    for compressor, expected in ((Compressor(), "claude-sonnet-4-5"), (small, "claude-haiku-4-5")):
        agent = Agent("x", has_backend=False, compressor=compressor)
        model = with_agent(replace(settings, llm=llm), agent).kit("x").compressor
        assert model is not None
        assert model.name == expected


def test_the_demo_model_writes_no_summaries(kits: Kits) -> None:
    assert kits.kit("default").compressor is None


@pytest.mark.parametrize(
    ("session", "agent", "expected"), [("s", "a", "s"), (None, "a", "a"), (None, None, "claude-sonnet-4-5")]
)
def test_a_sessions_model_goes_before_its_agents_and_that_before_the_settings(
    settings: Settings, session: str | None, agent: str | None, expected: str
) -> None:
    llm = LlmSettings(provider="anthropic", model="claude-sonnet-4-5", api_key="sk-none")
    kits = with_agent(replace(settings, llm=llm), Agent("x", has_backend=False, model=agent))
    model = kits.kit("x", Choice(model=session)).model
    assert isinstance(model, Retrying)
    assert model.name == expected


def test_a_question_gets_todays_date_and_the_pattern_that_fits(kits: Kits) -> None:
    text, patterns = kits.match(QUESTION, Agent("default"))
    assert text.startswith(f"Today is {datetime.now(UTC):%Y-%m-%d}.")
    [pattern] = patterns
    assert pattern["id"] in text
    assert 0.15 <= pattern["score"] <= 1


def test_a_pattern_below_the_agents_threshold_stays_away(kits: Kits) -> None:
    text, patterns = kits.match(QUESTION, Agent("default", min_confidence=1.1))
    assert (patterns, text) == ((), f"Today is {datetime.now(UTC):%Y-%m-%d}.")


def test_a_question_that_fits_nothing_gets_the_date_alone(kits: Kits) -> None:
    assert kits.match("zzz qqq", Agent("default"))[1] == ()


def test_an_agent_gets_as_many_patterns_as_it_wants(kits: Kits) -> None:
    text, patterns = kits.match(QUESTION, Agent("default", max_patterns_per_turn=4, min_confidence=0.0))
    assert len(patterns) == 4
    assert all(pattern["id"] in text for pattern in patterns)
    scores = [pattern["score"] for pattern in patterns]
    assert scores == sorted(scores, reverse=True)


def test_an_agent_without_patterns_asks_no_index(settings: Settings, tmp_path: Path, database: Database) -> None:
    kits = Kits(replace(settings, patterns_dir=tmp_path / "none"), load(None), database)
    assert kits.match(QUESTION, Agent("default", patterns_enabled=False))[1] == ()


def test_warming_up_leaves_nothing_for_the_first_turn_to_build(kits: Kits) -> None:
    kits.warm()
    assert kits.kit("default").count("warm") > 0


def test_closing_twice_is_closing_once(kits: Kits) -> None:
    kits.kit("default")
    kits.close()
    kits.close()
    assert "orders" in kits.kit("default").schema
