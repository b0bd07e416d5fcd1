"""A search with its defaults in a small window, through an agent with all its tools and the code that fits requests."""

import json
from dataclasses import replace

import pytest

from loom_worker.agents.load import load
from loom_worker.core.fence import fence
from loom_worker.core.settings import Settings, from_env
from loom_worker.core.values.chat import ChatMessage, ToolOutcome, ToolUse
from loom_worker.core.values.json import Json
from loom_worker.memory.fit import Context
from loom_worker.memory.recalled import as_text
from loom_worker.store.database import Database
from loom_worker.tools.call import call
from loom_worker.turn.context import build, layers_of
from loom_worker.turn.runtime import AgentRuntime
from tests.support.registry import made_components
from tests.unit.memory.recall.made import Talk, Told

QUERY: Json = {"query": "Which apple answers were there?"}


def runtime_with(settings: Settings, database: Database, **env: str) -> AgentRuntime:
    """The default agent with a window of 8,000 tokens."""
    small = from_env({"LOOM_HOME": str(settings.home), "LOOM_MAX_CONTEXT_TOKENS": "8000", **env})
    components = made_components(replace(settings, llm=small.llm, tools=small.tools), load(None), database)
    runtime = components.registry.runtime("default")
    components.close()
    return runtime


def searched(runtime: AgentRuntime, talk: Talk) -> str:
    """What a search with its defaults gives."""
    tool = runtime.registry.get("search_conversation")
    assert tool is not None
    done = call(tool, QUERY, talk.caller, timeout_s=30.0, pool=None, max_bytes=1_000_000)
    assert done.status == "completed", done
    return done.content


def sent(runtime: AgentRuntime, talk: Talk, *results: str) -> Context:
    """What the model is sent after searches that gave these results."""
    current = [ChatMessage("user", "What did I say of apples?")]
    for number, result in enumerate(results):
        use = ToolUse(f"toolu_{number}", "search_conversation", QUERY)
        current += [ChatMessage("assistant", tool_uses=(use,)), ChatMessage("tool", outcomes=(_outcome(use, result),))]
    remembered = talk.memories.load(talk.lane, limit=200)
    recalled = as_text(remembered.recalled, fence)
    return build(
        runtime,
        layers_of(runtime, remembered, rom="You help.", kernel={}, recalled=recalled, current=current),
        ratio=1.0,
    )


def _outcome(use: ToolUse, result: str) -> ToolOutcome:
    return ToolOutcome(use.id, use.name, result)


@pytest.fixture
def talk(apples: Told, settings: Settings, database: Database) -> Talk:
    return apples.copied_to(settings, database)


def test_a_search_with_its_defaults_is_sent_whole_in_a_window_of_8000_tokens(talk: Talk, settings: Settings) -> None:
    runtime = runtime_with(settings, talk.database)
    result = searched(runtime, talk)
    read = json.loads(result)
    assert len(read["found"]) == 10
    assert read["recalled"]["added"] > 0
    context = sent(runtime, talk, result)
    assert [outcome.content for message in context.messages for outcome in message.outcomes] == [result]
    assert context.tokens["recalled"] > 0


def test_of_two_searches_in_a_small_window_the_latest_is_sent_whole(talk: Talk, settings: Settings) -> None:
    runtime = runtime_with(settings, talk.database)
    results = [searched(runtime, talk), searched(runtime, talk)]
    context = sent(runtime, talk, *results)
    assert [outcome.content for message in context.messages for outcome in message.outcomes][-1] == results[-1]


def test_a_search_does_not_become_a_reference_however_small_those_are(talk: Talk, settings: Settings) -> None:
    runtime = runtime_with(settings, talk.database, LOOM_MAX_CONTEXT_TOKENS="200000", LOOM_REFERENCE_BYTES="2048")
    result = searched(runtime, talk)
    assert len(json.loads(result)["found"]) > 0
    assert len(result.encode()) < 2048
