"""What an agent may do in a workspace that its administrator has restricted."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.agents.load import Agents
from loom_worker.core.settings import Settings
from loom_worker.core.values.agents import Agent, ModelChoice
from loom_worker.core.values.sessions import Choice
from loom_worker.core.values.workspaces import ALL_NAMES, NameRules, Rules
from loom_worker.runtime.agents import AgentRegistry
from loom_worker.runtime.components import Components
from loom_worker.runtime.workspace_rules import KNOWN_S, RulesCache
from loom_worker.store.database import Database
from loom_worker.store.workspaces import Workspaces
from loom_worker.turn.agent_runtime import AgentRuntime
from tests.support.callers import CALLER
from tests.support.registry import made_components

OWN = {"load_pattern", "list_patterns"}
AGENT = Agent("default", backend=None, llm=ModelChoice("ollama", "agent-model"))


@pytest.fixture
def components(settings: Settings, database: Database) -> Iterator[Components]:
    fitted = made_components(settings, Agents({"default": AGENT}, ()), database)
    yield fitted
    fitted.close()


@pytest.fixture
def registry(components: Components) -> AgentRegistry:
    return components.registry


def rule(database: Database, **rules: Any) -> None:
    Workspaces(database).patch("acme", rules, now_ms=1)


def names(runtime: AgentRuntime) -> set[str]:
    return {spec.name for spec in runtime.specs}


def test_a_tool_that_is_denied_can_neither_be_seen_nor_called(registry: AgentRegistry, database: Database) -> None:
    rule(database, tools={"deny": ["shared_*", "get_error_detail"]})
    within, elsewhere = registry.runtime("default", workspace="acme"), registry.runtime("default", workspace="other")
    gone = names(elsewhere) - names(within)
    assert gone == {"get_error_detail", *(name for name in names(elsewhere) if name.startswith("shared_"))}
    assert within.tool("shared_memory_read") is None
    assert {tool.spec.name for tool in registry.tools("default", workspace="acme")} == names(within)
    assert {tool.spec.name for tool in registry.tools("default", workspace="other")} == names(elsewhere)
    assert elsewhere.tool("shared_memory_read") is not None


def test_only_what_is_allowed_is_left_of_an_agents_tools_and_those_that_loom_needs_stay(
    registry: AgentRegistry, database: Database
) -> None:
    rule(database, tools={"allow": ["load_*"]})
    within = names(registry.runtime("default", workspace="acme"))
    assert within & OWN == {"load_pattern"}
    assert "recall_conversation" in within


def test_a_session_cannot_choose_what_its_workspace_denies(registry: AgentRegistry, database: Database) -> None:
    rule(database, tools={"deny": ["list_patterns"]})
    chosen = registry.runtime("default", Choice(tools=("list_patterns", "load_pattern")), workspace="acme")
    assert names(chosen) & OWN == {"load_pattern"}


def test_a_session_chooses_its_model_before_the_workspace_and_that_before_the_agent(
    registry: AgentRegistry, database: Database
) -> None:
    def asked(choice: Choice = Choice()) -> str:  # noqa: B008 - frozen
        return registry.runtime("default", choice, workspace="acme").model.name.removeprefix("ollama/")

    assert asked() == "agent-model"
    rule(database, model="workspace-model", provider="scripted")
    registry._rules = RulesCache(database)
    assert registry.runtime("default", workspace="acme").model.name.startswith("scripted")
    rule(database, provider=None)
    registry._rules = RulesCache(database)
    assert asked() == "workspace-model"
    assert asked(Choice(model="session-model")) == "session-model"


def test_a_skill_that_is_denied_is_neither_told_of_nor_read(components: Components, database: Database) -> None:
    root = components.knowledge.skills.root / "acme" / "skills"
    for name in ("infra-ops", "billing"):
        (root / name).mkdir(parents=True)
        (root / name / "SKILL.md").write_text(f"---\nname: {name}\ndescription: About {name}.\n---\nDo it.\n")
    rule(database, skills={"deny": ["bill*"]})
    runtime = components.registry.runtime("default", workspace="acme")
    assert [skill.name for skill in runtime.skill_set.skills] == ["infra-ops"]
    tool = runtime.tool("read_skill_file")
    assert tool is not None
    with pytest.raises(Exception, match="no skill 'billing'"):
        tool.run({"skill": "billing"}, replace(CALLER, workspace="acme"))


def test_a_change_of_the_rules_holds_after_a_second(database: Database) -> None:
    moment_s = [100.0]
    cache = RulesCache(database, clock_s=lambda: moment_s[0])
    assert cache.of("acme").model is None
    rule(database, model="m2")
    assert cache.of("acme").model is None
    moment_s[0] += KNOWN_S
    assert cache.of("acme").model == "m2"
    assert cache.of(None) == Rules()


patterns = st.lists(st.text("ab*?", min_size=1, max_size=4), max_size=3)
rules = st.builds(NameRules, st.none() | patterns.map(tuple), patterns.map(tuple))


@given(rules, st.text("ab", min_size=1, max_size=4))
def test_rules_of_names_only_take_away(given_rules: NameRules, name: str) -> None:
    assert ALL_NAMES.permit(name)
    if given_rules.denies(name):
        assert not given_rules.permit(name)
    assert NameRules.of(given_rules.as_json()) == given_rules


@given(rules, st.text("ab", min_size=1, max_size=4))
def test_a_session_gets_no_more_under_rules(given_rules: NameRules, name: str) -> None:
    choice = Choice(model="own").under(Rules(model="other", tools=given_rules))
    assert choice.model == "own"
    assert choice.permitted.permit(name) == given_rules.permit(name)
