"""Agents with everything in their hands; a broken one says so and stops nobody."""

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from loom_worker.agents.load import Agents, load
from loom_worker.core.errors import ProviderFailed
from loom_worker.core.settings_tree import LlmSettings, Settings
from loom_worker.core.values.agents import Agent, Auth, Backend, ModelChoice
from loom_worker.core.values.chat import ChatMessage, Request, Thinking, ToolSpec, ToolUse
from loom_worker.core.values.json import Json
from loom_worker.core.values.judges import Panel, PanelMember
from loom_worker.core.values.memory import MemoryPolicy
from loom_worker.core.values.sessions import Choice, NewSession
from loom_worker.core.values.tiers import MemoryTiers
from loom_worker.demo.scripted import Scripted
from loom_worker.llm.retry import Retrying
from loom_worker.runtime.agents import AgentRegistry
from loom_worker.store.database import Database
from loom_worker.store.sessions import Sessions
from loom_worker.turn.agent_runtime import AgentRuntime
from tests.support.callers import CALLER
from tests.support.registry import made_components, made_registry

MEMORY = {"update_session_context", "recall_conversation", "search_conversation", "clear_recalled_context"}
PANEL = Panel((PanelMember("llm", "llm"), PanelMember("words", "contains", timeout_s=10)))
STANDING = {"get_tool_result", "query_tool_result", "get_error_detail"}
SHARED = {f"shared_memory_{verb}" for verb in ("write", "read", "list", "delete", "watch")}


class Shelf:
    """Agents that change."""

    def __init__(self, *agents: Agent) -> None:
        self.agents = Agents({agent.name: agent for agent in agents}, ())

    def current(self, wanted: str = "default") -> Agents:
        return self.agents

    def kept(self, name: str, version: str | None) -> Agent | None:
        return self.agents.kept(name, version)


@pytest.fixture
def registry(settings: Settings, shop_url: str, database: Database) -> Iterator[AgentRegistry]:
    fitted = made_components(replace(settings, backend_url=shop_url), load(None), database)
    yield fitted.registry
    fitted.close()


def with_agent(settings: Settings, agent: Agent) -> AgentRegistry:
    return made_registry(settings, Agents({agent.name: agent}, ()), Database(settings.database_url))


def words_of(runtime: AgentRuntime) -> str:
    """What an agent runtime's model says when it is asked."""
    with pytest.raises(ProviderFailed) as caught:
        list(runtime.model.reply(Request("", (ChatMessage("user", "?"),))))
    return str(caught.value)


def test_the_default_agent_has_tools_a_schema_and_a_model(registry: AgentRegistry) -> None:
    runtime = registry.runtime("default")
    own = {"list_tables", "get_schema", "execute_sql", "load_pattern", "list_patterns"}
    assert own | MEMORY | STANDING | SHARED == {spec.name for spec in runtime.specs}
    assert "orders" in runtime.schema
    assert runtime.model.name == Scripted.name


def test_a_kit_is_built_once_for_each_agent_and_model(registry: AgentRegistry) -> None:
    assert registry.runtime("default") is registry.runtime("default")
    assert registry.runtime("default", Choice(model="other-model")) is not registry.runtime("default")


def test_the_model_of_an_agent_that_is_gone_says_which_is_missing(registry: AgentRegistry) -> None:
    runtime = registry.runtime("ghost")
    assert "no agent 'ghost'" in words_of(runtime)
    assert runtime.specs == ()


def test_the_model_of_an_agent_whose_file_is_refused_says_what_is_wrong_with_it(
    settings: Settings, tmp_path: Path
) -> None:
    (tmp_path / "a.yaml").write_text("agent: {name: default, config: {max_turns: many}}", encoding="utf-8")
    runtime = made_registry(settings, load(tmp_path), Database(settings.database_url)).runtime("default")
    assert f"{tmp_path}/a.yaml:1: agent default: agent.config.max_turns" in words_of(runtime)
    assert (runtime.specs, runtime.schema) == ((), "")


def test_a_changed_agent_has_a_new_kit(settings: Settings) -> None:
    shelf = Shelf(Agent("a", backend=None))
    registry = made_registry(settings, shelf, Database(settings.database_url))  # type: ignore[arg-type]
    before = registry.runtime("a")
    assert registry.runtime("a") is before
    shelf.agents = Agents({"a": Agent("a", backend=None, system_prompt="Changed.")}, ())
    assert registry.runtime("a").agent.system_prompt == "Changed."
    assert registry.runtime("a") is registry.runtime("a")
    shelf.agents = Agents({}, ())
    assert "no agent 'a'" in words_of(registry.runtime("a"))


@pytest.mark.parametrize("url", ["nonsense", "nosuch://host/db"])
def test_an_agent_with_a_backend_that_cannot_be_says_so_with_its_first_call(settings: Settings, url: str) -> None:
    runtime = with_agent(settings, Agent("broken", backend=Backend(url=url))).runtime("broken")
    assert "'broken' cannot work" in words_of(runtime)


def test_a_database_that_is_away_is_told_in_place_of_its_schema(settings: Settings, tmp_path: Path) -> None:
    runtime = with_agent(settings, Agent("a", backend=Backend(url=f"sqlite:///{tmp_path}/none.db"))).runtime("a")
    assert "cannot be read now" in runtime.schema


def test_the_window_is_shared_between_what_is_sent_and_what_is_answered(settings: Settings) -> None:
    runtime = with_agent(settings, Agent("a", backend=None, max_context_tokens=10_000, max_tokens=9_999)).runtime("a")
    assert runtime.input_budget_tokens + runtime.max_tokens == 10_000
    own = with_agent(settings, Agent("b", backend=None, reserved_output_tokens=500, max_tokens=100)).runtime("b")
    assert (own.input_budget_tokens, own.max_tokens) == (settings.llm.max_context_tokens - 500, 100)


def test_an_agent_without_data_and_patterns_has_what_every_agent_has(settings: Settings) -> None:
    agent = Agent("bare", backend=None, patterns_enabled=False)
    runtime = with_agent(settings, agent).runtime("bare")
    assert ({spec.name for spec in runtime.specs}, runtime.schema) == (MEMORY | STANDING | SHARED, "")


def test_an_agent_with_tiers_searches_the_conversations_of_its_scope(settings: Settings) -> None:
    agent = Agent("tiered", backend=None, patterns_enabled=False, tiers=MemoryTiers())
    assert "memory_search" in {spec.name for spec in with_agent(settings, agent).runtime("tiered").specs}


def names(specs: Iterable[ToolSpec]) -> set[str]:
    return {spec.name for spec in specs}


def test_an_agent_has_the_tools_it_may_use_and_those_of_its_memory(registry: AgentRegistry, settings: Settings) -> None:
    agent = Agent("narrow", tools=("execute_sql", "not_there"))
    mine = {"execute_sql"} | MEMORY | STANDING
    assert names(tool.spec for tool in with_agent(settings, agent).tools("narrow")) == mine
    assert names(with_agent(settings, agent).runtime("narrow").specs) == mine


def test_an_agent_without_swap_cannot_look_for_what_left_its_context(settings: Settings) -> None:
    agent = Agent("forgetful", tools=("no_such",), memory=MemoryPolicy(has_swap=False))
    assert names(with_agent(settings, agent).runtime("forgetful").specs) == {"update_session_context"} | STANDING


def test_an_empty_list_of_tools_means_no_tool_at_all(settings: Settings) -> None:
    assert with_agent(settings, Agent("bare", tools=())).runtime("bare").specs == ()
    assert with_agent(settings, Agent("a")).runtime("a", Choice(tools=())).specs == ()
    grouped = Agent("grouped", tools=(), allows_mcp=True)
    assert names(with_agent(settings, grouped).runtime("grouped").specs) == MEMORY | STANDING


def test_a_session_may_choose_fewer_tools(settings: Settings) -> None:
    runtime = with_agent(settings, Agent("a")).runtime("a", Choice(tools=("execute_sql",)))
    assert names(runtime.specs) == {"execute_sql"} | MEMORY | STANDING
    assert runtime.registry.prepared(ToolUse("t", "list_tables", {}), runtime.allowed).error is not None


def test_a_session_may_choose_another_database_of_the_same_server(
    settings: Settings, tmp_path: Path, shop_url: str
) -> None:
    agent = Agent(
        "a", backend=Backend(url=f"sqlite:///{tmp_path}/none.db", databases=(shop_url.removeprefix("sqlite:///"),))
    )
    registry = with_agent(settings, agent)
    assert "orders" not in registry.runtime("a").schema
    assert "orders" in registry.runtime("a", Choice(backend=agent.databases[0])).schema


def test_summaries_are_written_by_the_compressor_of_the_agent(settings: Settings) -> None:
    llm = LlmSettings(provider="anthropic", model="claude-sonnet-4-5", api_key="sk-none")
    small = ModelChoice(model="claude-haiku-4-5", max_context_tokens=50_000)
    for compressor, expected in ((ModelChoice(), "claude-haiku-5-5"), (small, "claude-haiku-4-5")):
        agent = Agent("x", backend=None, compressor=compressor)
        model = with_agent(replace(settings, llm=llm), agent).runtime("x").compressor
        assert model is not None
        assert model.name == expected


@pytest.mark.cases(
    ("provider", "model", "small"),
    [
        ("openai", "gpt-6.1-sol", "openai/gpt-6-luna"),
        ("openai", "gpt-6-luna", "openai/gpt-6-luna"),
        ("vllm", "m", "vllm/m"),
    ],
)
def test_summaries_are_written_by_the_makers_small_model_where_it_is_cheaper(
    settings: Settings, provider: str, model: str, small: str
) -> None:
    own = settings.secrets | {"K": "k"}
    agent = Agent("x", backend=None, llm=ModelChoice(provider, model, secret="K"))
    compressor = with_agent(replace(settings, secrets=own), agent).runtime("x").compressor
    assert compressor is not None
    assert compressor.name == small


def test_without_a_compressor_of_its_own_an_agent_of_another_vendor_writes_its_own_summaries(
    settings: Settings,
) -> None:
    llm = LlmSettings(provider="ollama", model="qwen3")
    runtime = with_agent(replace(settings, llm=llm), Agent("x", backend=None)).runtime("x")
    assert runtime.compressor is not None
    assert runtime.compressor.name == runtime.model.name


def test_the_demo_model_writes_no_summaries(registry: AgentRegistry) -> None:
    assert registry.runtime("default").compressor is None


@pytest.mark.parametrize(
    ("session", "agent", "expected"), [("s", "a", "s"), (None, "a", "a"), (None, None, "claude-sonnet-4-5")]
)
def test_a_sessions_model_goes_before_its_agents_and_that_before_the_settings(
    settings: Settings, session: str | None, agent: str | None, expected: str
) -> None:
    llm = LlmSettings(provider="anthropic", model="claude-sonnet-4-5", api_key="sk-none")
    registry = with_agent(replace(settings, llm=llm), Agent("x", backend=None, llm=ModelChoice(model=agent)))
    model = registry.runtime("x", Choice(model=session)).model
    assert isinstance(model, Retrying)
    assert model.name == expected


def test_warming_up_leaves_nothing_for_the_first_turn_to_build(registry: AgentRegistry) -> None:
    registry.warm()
    assert registry.runtime("default").count("warm") > 0


def test_closing_twice_is_closing_once(registry: AgentRegistry) -> None:
    registry.runtime("default")
    registry.close()
    registry.close()
    assert "orders" in registry.runtime("default").schema


def test_an_agent_has_the_tools_of_its_user_s_files_and_a_bad_file_costs_no_other(
    settings: Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "dice.py").write_text(
        "from loom_worker.tools.declare import tool\n\n\n@tool\ndef roll(sides: int) -> int:\n"
        '    """Roll a die."""\n    return sides\n'
    )
    (tmp_path / "bad.py").write_text("def oops(:\n")
    source = f"{tmp_path}/a.yaml:1"
    agent = Agent("a", backend=None, tools=(), custom=("dice.py", "bad.py"), source=source)
    runtime = with_agent(settings, agent).runtime("a")
    assert "roll" in names(runtime.specs)
    assert "bad.py" in caplog.text
    readers = with_agent(settings, replace(agent, is_read_only=True)).runtime("a")
    assert "roll" not in names(readers.specs)
    assert "may only read" in str(
        readers.registry.prepared(ToolUse("t", "roll", {"sides": 6}), None, read_only=True).error
    )


def test_a_tool_is_mended_for_providers_and_what_became_of_tools_is_logged_once(
    settings: Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = "from loom_worker import tool\n\n@tool\ndef stock(größe: int) -> int:\n    'Stock.'\n    return größe\n"
    (tmp_path / "stock.py").write_text(text, encoding="utf-8")
    agent = Agent("a", backend=None, custom=("stock.py", "gone.py"), source=f"{tmp_path}/a.yaml:1")
    registry = with_agent(settings, agent)
    for model in ("one", "two", "three"):
        runtime = registry.runtime("a", Choice(model=model))
        registry.tools("a")
    (spec,) = [each for each in runtime.specs if each.name == "stock"]
    (name,) = cast(Json, spec.input_schema["properties"])
    assert runtime.prepared(ToolUse("t", "stock", {name: "3"})).arguments == {"größe": 3}
    assert [caplog.text.count(told) for told in ("gone.py", "größe")] == [1, 1]


def test_an_edited_tool_file_is_taken_up_by_a_running_process_and_a_broken_one_leaves_the_former(
    settings: Settings, tmp_path: Path, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """What the model is told and what runs are of one version, whatever the file says by then."""
    path, now_s = tmp_path / "word.py", time.time()
    source = f"{tmp_path}/a.yaml:1"
    agent = Agent("a", backend=None, tools=(), custom=("word.py",), source=source)
    fitted = made_components(settings, Agents({"a": agent}, ()), database)

    def edited(text: str, age_s: int) -> AgentRuntime:
        path.write_text(text)
        os.utime(path, (now_s - age_s, now_s - age_s))
        return fitted.registry.runtime("a")

    def told_and_said(runtime: AgentRuntime) -> tuple[str, str]:
        tool = runtime.tool("word")
        assert tool is not None
        outcome = fitted.executor.pool.run(tool, {}, CALLER, timeout_s=20, max_bytes=100)
        return tool.spec.description, outcome.content

    text = "from loom_worker.tools.declare import tool\n\n@tool\ndef word() -> str:\n    {doc!r}\n    return {said!r}\n"
    one = edited(text.format(doc="First.", said="one"), 90)
    two = edited(text.format(doc="Second.", said="two"), 60)
    assert told_and_said(two) == ("Second.", "two")
    broken = edited("def word(:\n", 30)
    assert told_and_said(broken) == ("Second.", "two")
    assert told_and_said(one) == ("First.", "one")
    assert f"{path}:1: invalid syntax" in caplog.text
    fitted.close()


def test_a_folder_of_documents_and_an_api_are_data_too(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "handbook").mkdir()
    (tmp_path / "handbook" / "returns.md").write_text("# Returns\nThirty days.\n")
    (tmp_path / "api.json").write_text(
        '{"openapi": "3.1.0", "info": {"title": "Shop", "version": "1"}, "paths": {"/orders": {"get": '
        '{"operationId": "listOrders", "summary": "List orders", "responses": {}}}}}'
    )
    source = f"{tmp_path}/a.yaml:1"
    folder = Backend(kind="documents", path="handbook")
    reader = with_agent(settings, Agent("d", backend=folder, source=source)).runtime("d")
    assert {"search_documents", "read_document"} <= names(reader.specs)
    assert "returns.md" in reader.schema
    api = Backend(kind="rest", url="https://shop.example.com", openapi="api.json")
    caller = with_agent(settings, Agent("r", backend=api, source=source)).runtime("r")
    assert "listOrders" in names(caller.specs)


def test_a_secret_that_is_not_set_is_named(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "api.json").write_text('{"openapi": "3.1.0", "info": {"title": "S", "version": "1"}, "paths": {}}')
    api = Backend(kind="rest", url="https://shop.example.com", openapi="api.json", auth=Auth("bearer", "SHOP"))
    runtime = with_agent(settings, Agent("r", backend=api, source=f"{tmp_path}/a.yaml:1")).runtime("r")
    assert "LOOM_SECRET_SHOP" in words_of(runtime)


def test_an_agent_has_the_tools_to_talk_with_those_it_may_call_and_they_can_read_what_it_sends(
    settings: Settings,
) -> None:
    lead = Agent("lead", backend=None, tools=(), may_call=("aide", "gone"))
    agents = {agent.name: agent for agent in (lead, Agent("aide", "1", "Counts parcels."), Agent("loner"))}
    registry = made_registry(settings, Agents(agents, ()), Database(settings.database_url))
    calls, receives = {"ask_agent", "delegate", "send_agent"}, {"receive_messages"}
    found = {name: names(registry.runtime(name).specs) & (calls | receives) for name in agents}
    assert found == {"lead": calls | receives, "aide": receives, "loner": set()}
    specs = {spec.name: spec for spec in registry.runtime("lead").specs}
    agent = specs["ask_agent"].input_schema["properties"]["agent"]
    assert agent == {"enum": ["aide", "gone"], "description": "aide: Counts parcels.; gone"}


def test_an_agent_that_others_may_call_from_now_on_can_read_their_messages(settings: Settings) -> None:
    aide = Agent("aide", backend=None)
    shelf = Shelf(aide)
    registry = made_registry(settings, shelf, Database(settings.database_url))  # type: ignore[arg-type]
    assert "receive_messages" not in names(registry.runtime("aide").specs)
    shelf.agents = Agents({"aide": aide, "lead": Agent("lead", backend=None, may_call=("aide",))}, ())
    assert "receive_messages" in names(registry.runtime("aide").specs)


def test_only_agents_with_tiers_have_their_tools_and_rules(settings: Settings, database: Database) -> None:
    tiers = MemoryTiers(has_summaries=False)
    fitted = made_components(
        settings,
        Agents({"plain": Agent("plain", backend=None), "t": Agent("t", backend=None, tiers=tiers)}, ()),
        database,
    )
    offered = {name: {spec.name for spec in fitted.registry.runtime(name).specs} for name in ("plain", "t")}
    assert offered["t"] - offered["plain"] == {"memory_search", "memory_recall", "memory_semantic"}
    for name, kept in (("plain", None), ("t", tiers)):
        session = Sessions(database).create("default", NewSession(name, agent=name), now_ms=1)
        assert fitted.registry.compression(session).tiers == kept
    fitted.close()


def test_a_model_at_home_gets_time_brief_tools_and_no_second_summary(settings: Settings, database: Database) -> None:
    usual = with_agent(settings, Agent("a", llm=ModelChoice("groq", "llama"), judges=PANEL)).runtime("a")
    fitted = with_agent(settings, Agent("a", llm=ModelChoice("vllm", "qwen"), judges=PANEL))
    local = fitted.runtime("a")
    assert (usual.least_turn_s, local.least_turn_s) == (0, 3_600)
    assert [member.timeout_s for member in (local.agent.judges or PANEL).members] == [300, 10]
    told = [sum(len(str(spec)) for spec in runtime.specs) for runtime in (usual, local)]
    assert told[1] < 0.8 * told[0]
    session = Sessions(database).create("w", NewSession(id="s", agent="a"), now_ms=1)
    assert fitted.compression(session).is_thrifty


def test_a_window_is_never_larger_than_the_models(settings: Settings) -> None:
    small = with_agent(settings, Agent("a", llm=ModelChoice("openai", "gpt-4")))
    assert small.window("a") == (8_192, 819)
    own = with_agent(settings, Agent("a", llm=ModelChoice("openai", "gpt-4"), max_context_tokens=4_000))
    assert own.window("a") == (4_000, 400)
    unknown = with_agent(settings, Agent("a", llm=ModelChoice("vllm", "mine")))
    assert unknown.window("a")[0] == settings.llm.max_context_tokens


def test_a_reply_has_room_for_what_is_thought_before_it(settings: Settings) -> None:
    def room(thinking: Thinking | None) -> int:
        llm = ModelChoice("anthropic", "claude-sonnet-5-5", thinking=thinking)
        return with_agent(settings, Agent("a", llm=llm, max_tokens=2_000)).runtime("a").max_tokens

    assert [room(None), room(Thinking(budget_tokens=3_000)), room(Thinking(effort="high"))] == [2_000, 5_000, 18_384]
