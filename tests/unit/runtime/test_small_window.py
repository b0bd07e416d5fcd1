"""What a window of 8,000 tokens has room for, with the tools that an agent really has."""

import json
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loom_worker.agents.load import Agents, load
from loom_worker.core.errors import Invalid
from loom_worker.core.settings_tree import LlmSettings, Settings
from loom_worker.core.values.agents import Agent, Backend
from loom_worker.core.values.chat import ChatMessage, ToolOutcome, ToolUse
from loom_worker.core.values.memory import MemoryState, Remembered
from loom_worker.core.values.tools import Caller
from loom_worker.memory.layers import message_tokens, tools_tokens
from loom_worker.runtime.components import Components
from loom_worker.service.context_report import ContextReport
from loom_worker.store.database import Database
from loom_worker.tools.registry import MORE
from loom_worker.turn.agent_runtime import AgentRuntime
from loom_worker.turn.context import build, layers_of, new_rom, offered
from tests.support.registry import made_components
from tests.support.shop_file import shop_path

__all__ = ["shop_path"]

WINDOW, RESERVE, MESSAGE_TOKENS = 8_000, 800, 2_000
LATE = {"get_tool_result", "query_tool_result", "get_error_detail", "search_conversation", "recall_conversation"}
REF = "ref_" + "a" * 32
NOTHING = Remembered()


def narrow(provider: str, *, window: int = WINDOW) -> LlmSettings:
    """A window of so many tokens."""
    model = {"scripted": "scripted-demo", "anthropic": "claude-sonnet-5-5"}[provider]
    llm = LlmSettings(model=model, api_key="sk-none", max_context_tokens=window, reserved_output_tokens=window // 10)
    return replace(llm, provider=provider)  # type: ignore[arg-type]


@pytest.fixture(params=["scripted", "anthropic"])
def fitted(
    request: pytest.FixtureRequest, settings: Settings, shop_path: Path, database: Database
) -> Iterator[Components]:
    here = replace(settings, backend_url=f"sqlite:///{shop_path}", llm=narrow(request.param))
    fitted = made_components(here, load(None), database)
    yield fitted
    fitted.close()


@pytest.fixture
def runtime(fitted: Components) -> AgentRuntime:
    return fitted.registry.runtime("default")


def shown(runtime: AgentRuntime, remembered: Remembered = NOTHING, *current: ChatMessage) -> set[str]:
    """The names of the tools that are shown."""
    return {spec.name for spec in offered(runtime, remembered, current)}


def sized(runtime: AgentRuntime, tokens: int) -> str:
    """A message of so many tokens, as the agent runtime counts."""
    words = "How much did the shop in Hamburg sell in March, and of what?".split()

    def text(count: int) -> str:
        return " ".join(words[number % len(words)] for number in range(count))

    def counted(count: int) -> int:
        return message_tokens(ChatMessage("user", text(count)), runtime.count)

    return text(bisect_left(range(2 * tokens), tokens, key=counted))


def context_report_of(fitted: Components, database: Database) -> ContextReport:
    """What refuses a message that is too long."""
    return ContextReport.at(fitted.registry, fitted.knowledge, database)


def test_a_message_of_2000_tokens_fits_beside_tools_system_text_and_the_answers_reserve(
    fitted: Components, runtime: AgentRuntime, database: Database
) -> None:
    text = sized(runtime, MESSAGE_TOKENS)
    context_report_of(fitted, database).check_fits("default", "s1", "default", ChatMessage("user", text))
    rom = new_rom(runtime, fitted.knowledge).text
    current = (ChatMessage("user", text),)
    layers = layers_of(runtime, Remembered(), rom=rom, kernel={}, recalled="", current=current)
    context = build(runtime, layers, ratio=runtime.typical)
    assert sum(context.tokens.values()) <= WINDOW - RESERVE
    assert context.messages == current
    assert "orders" in context.system


def test_a_message_that_does_not_fit_is_refused_when_it_is_sent(
    fitted: Components, runtime: AgentRuntime, database: Database
) -> None:
    message = ChatMessage("user", sized(runtime, 5_000))
    with pytest.raises(Invalid):
        context_report_of(fitted, database).check_fits("default", "s1", "default", message)


def test_tools_that_can_be_of_no_use_yet_are_not_shown(runtime: AgentRuntime) -> None:
    assert shown(runtime) == {"list_tables", "get_schema", "execute_sql", "update_session_context", MORE}
    assert tools_tokens(offered(runtime, Remembered(), ()), runtime.count) <= 0.3 * runtime.input_budget_tokens


@pytest.mark.cases(
    ("remembered", "current", "come"),
    [
        (Remembered(MemoryState(first_n=9)), (), {"search_conversation", "recall_conversation"}),
        (Remembered(MemoryState(refs=(REF,))), (), {"get_tool_result", "query_tool_result"}),
        (
            Remembered(),
            (ChatMessage("user", "", outcomes=(ToolOutcome("1", "execute_sql", f"200 rows: {REF}"),)),),
            {"get_tool_result", "query_tool_result"},
        ),
        (
            Remembered(),
            (
                ChatMessage(
                    "user",
                    "",
                    outcomes=(
                        ToolOutcome("1", "execute_sql", "failed [Error ID: err_20261121_230334_abc123]", is_error=True),
                    ),
                ),
            ),
            {"get_error_detail"},
        ),
        (
            Remembered(),
            (ChatMessage("assistant", "", tool_uses=(ToolUse("1", MORE, {"names": ["load_pattern"]}),)),),
            {"load_pattern"},
        ),
    ],
)
def test_a_tool_is_shown_once_there_is_an_occasion(
    runtime: AgentRuntime, remembered: Remembered, current: tuple[ChatMessage, ...], come: set[str]
) -> None:
    first, then = shown(runtime), shown(runtime, remembered, *current)
    assert come <= then - first
    assert then - first - come <= {"clear_recalled_context"}
    ordered = [spec.name for spec in offered(runtime, remembered, current)]
    assert ordered == sorted(ordered)


def test_a_tool_that_is_not_shown_can_be_called_all_the_same(runtime: AgentRuntime) -> None:
    assert not LATE & shown(runtime)
    assert runtime.prepared(ToolUse("1", "search_conversation", {"query": "tea"})).error is None
    assert runtime.prepared(ToolUse("1", "get_tool_result", {"ref": REF})).error is None


def test_a_turn_with_little_room_goes_on_without_the_tools_that_came_late(
    fitted: Components, runtime: AgentRuntime
) -> None:
    rom = new_rom(runtime, fitted.knowledge).text
    fixed = runtime.count(rom) + tools_tokens(runtime.least_specs, runtime.count)
    current = (ChatMessage("user", sized(runtime, int(runtime.input_budget_tokens / 1.05) - fixed - 180)),)
    remembered = Remembered(MemoryState(refs=(REF,), first_n=9))
    layers = layers_of(runtime, remembered, rom=rom, kernel={}, recalled="", current=current)
    context = build(runtime, layers, ratio=runtime.typical)
    assert len(context.tools) == len(runtime.least_specs) < len(layers.tools)
    assert context.messages == current


ALONE = Agent("a", backend=None, system_prompt="You help.")
EARLIER = {"update_session_context", "search_conversation", "recall_conversation", "clear_recalled_context"}


@pytest.mark.parametrize(("window", "first"), [(WINDOW, set()), (20_000, {"update_session_context", MORE})])
def test_an_agent_without_data_is_shown_no_idle_tool_where_the_window_is_too_small(
    settings: Settings, database: Database, window: int, first: set[str]
) -> None:
    here = replace(settings, llm=narrow("anthropic", window=window))
    fitted = made_components(here, Agents({"a": ALONE}, ()), database)
    runtime = fitted.registry.runtime("a")
    assert (shown(runtime), shown(runtime, Remembered(MemoryState(first_n=9)))) == (first, first | EARLIER)
    assert runtime.prepared(ToolUse("1", "shared_memory_list", {})).error is None
    fitted.close()


@pytest.mark.parametrize(
    "asks",
    [
        {"tools": ("shared_memory_read", "update_session_context")},
        {"tools": ()},
        {"system_prompt": "Keep what you learn by shared_memory_write."},
        {"name": "run:stage"},
        {"backend": Backend("sql")},
    ],
)
def test_what_a_file_asks_for_is_shown_in_a_small_window_too(
    settings: Settings, shop_path: Path, database: Database, asks: dict[str, Any]
) -> None:
    agent = replace(ALONE, **asks)
    here = replace(settings, backend_url=f"sqlite:///{shop_path}", llm=narrow("anthropic"))
    fitted = made_components(here, Agents({agent.name: agent}, ()), database)
    first = shown(fitted.registry.runtime(agent.name))
    fitted.close()
    assert first >= ({"update_session_context"} if agent.tools != () else set())
    assert (MORE in first) is (agent.tools != ())


def test_a_large_window_shows_all_tools_always(settings: Settings, shop_path: Path, database: Database) -> None:
    here = replace(settings, backend_url=f"sqlite:///{shop_path}", llm=narrow("scripted", window=200_000))
    fitted = made_components(here, load(None), database)
    runtime = fitted.registry.runtime("default")
    fitted.close()
    assert shown(runtime) >= LATE
    assert MORE not in shown(runtime)
    assert offered(runtime, Remembered(MemoryState(refs=(REF,))), ()) == runtime.specs == runtime.least_specs


@pytest.mark.parametrize(("operations", "listed"), [(100, None), (103, None), (600, None), (600, 3)])
def test_the_operations_of_a_large_api_are_found_and_called_and_the_list_stays_small(
    settings: Settings, database: Database, tmp_path: Path, operations: int, listed: int | None
) -> None:
    names = [f"{('list', 'count')[n % 2]}_things_{n // 2}" for n in range(operations)]
    paths = {f"/{name}": {"get": {"operationId": name, "summary": f"Says {name}"}} for name in names}
    (tmp_path / "api.json").write_text(json.dumps({"openapi": "3.2.0", "paths": paths}), encoding="utf-8")
    data, tools = (
        Backend("rest", url="https://a.example", openapi="api.json"),
        tuple(names[:listed]) if listed else None,
    )
    agent = replace(load(None).agents["default"], backend=data, tools=tools, source=f"{tmp_path}/a.yaml:1")
    large = replace(settings, llm=narrow("scripted", window=200_000))
    fitted = made_components(large, Agents({"default": agent}, ()), database)
    runtime = fitted.registry.runtime("default")
    fitted.close()
    eager = names[:listed] if operations <= 100 or listed else []
    assert shown(runtime) & {*names} == {*eager}
    assert tools_tokens(runtime.least_specs, runtime.count) + runtime.count(runtime.schema) < 12_000
    for more, name in ((runtime.registry.get(MORE), name) for name in (names[0], names[-1]) if not eager):
        assert more is not None
        assert f"{name}: Says" in str(more.run({"query": name}, Caller("l", "s", "w", "t", "c")))
        asked = ChatMessage("assistant", "", tool_uses=(ToolUse("1", MORE, {"names": [name]}), ToolUse("2", name, {})))
        assert shown(runtime, NOTHING, asked) & {*names} == {name}
        assert [runtime.prepared(use).error for use in asked.tool_uses] == [None, None]


def test_what_an_agents_list_leaves_out_cannot_be_asked_for(settings: Settings, database: Database) -> None:
    default = load(None).agents["default"]
    agents = Agents({"a": replace(default, name="a", backend=None, tools=("shared_memory_read",))}, ())
    fitted = made_components(replace(settings, llm=narrow("anthropic")), agents, database)
    runtime = fitted.registry.runtime("a")
    fitted.close()
    assert runtime.prepared(ToolUse("1", MORE, {"names": ["shared_memory_read"]})).error is None
    assert runtime.prepared(ToolUse("1", MORE, {"names": ["shared_memory_write"]})).error is not None
