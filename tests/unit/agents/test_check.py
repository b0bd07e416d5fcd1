from collections.abc import Iterable
from pathlib import Path

import pytest

from loom_worker.agents import check
from loom_worker.agents.load import load
from loom_worker.core.settings_tree import LlmSettings, Settings
from loom_worker.core.values.agents import Agent, Provider
from loom_worker.core.values.problems import Problem, in_order
from loom_worker.tools.registry import Registry

TOOLS = {"execute_sql": True, "pay": False, "files__read": True}


def agent(folder: Path, spec: str) -> Agent:
    (folder / "a.yaml").write_text(f"agent:\n  name: a\n{spec}", encoding="utf-8")
    return load(folder).agents["a"]


def told(problems: Iterable[Problem]) -> list[tuple[int, str, str]]:
    return [(problem.line, problem.field, problem.text) for problem in problems]


@pytest.mark.parametrize("unread", [("files__", ""), ("",)])
def test_nothing_is_called_unknown_while_its_source_is_not_read(tmp_path: Path, unread: tuple[str, ...]) -> None:
    found = agent(tmp_path, "  tools: [nothing, files__write]\n")
    assert told(check.tools(found, check.Inventory(TOOLS, unread))) == []


def test_only_names_of_the_source_that_is_not_read_may_be_there(tmp_path: Path) -> None:
    found = agent(tmp_path, "  tools:\n  - files__write\n  - nothing\n")
    (problem,) = told(check.tools(found, check.Inventory(TOOLS, ("files__",))))
    assert problem == (5, "agent.tools[1]", "there is no tool 'nothing'")


def test_tools_of_other_systems_are_warnings_and_give_nothing(tmp_path: Path) -> None:
    names = "Read web_search Bash(git:*) mcp__github__create_issue computer:20241022 * github/search file_read".split()
    found = agent(tmp_path, "  tools:\n" + "".join(f"  - '{name}'\n" for name in names))
    ours = dict.fromkeys(("execute_sql", "read_skill_file", "memory_search", "query_tool_result"), True)
    problems = list(check.tools(found, check.Inventory(ours)))
    assert [(each.line, each.is_warning) for each in problems] == [(line, True) for line in range(4, 4 + len(names))]
    assert (found.tools, found.custom, Registry([]).specs(found.tools)) == (tuple(names), (), ())


@pytest.mark.cases("spec", ["tools: [exec_sql]", "tools: [pays]", "config: {approval: {tools: [zzz]}}"])
def test_a_misspelt_tool_and_one_that_asks_nobody_are_faults(tmp_path: Path, spec: str) -> None:
    (problem,) = check.tools(agent(tmp_path, f"  {spec}\n"), check.Inventory(TOOLS))
    assert not problem.is_warning


def test_an_agent_without_a_list_of_tools_names_none_in_vain(tmp_path: Path) -> None:
    assert told(check.tools(agent(tmp_path, "  version: 2\n"), check.Inventory({}))) == []


@pytest.mark.parametrize(
    ("spec", "provider", "where"),
    [
        ("  llm:\n    provider: bedrock\n    model: m\n", "scripted", (4, "agent.llm.provider")),
        ("  version: 2\n", "bedrock", (0, "LOOM_PROVIDER")),
        (
            "  llm: {provider: scripted}\n  compressor_llm:\n    provider: bedrock\n    model: m\n",
            "scripted",
            (5, "agent.compressor_llm.provider"),
        ),
        (
            "  guardrails:\n    input:\n    - {find: card, action: flag}\n"
            "    - {find: injection, action: flag, model: bedrock/m}\n",
            "scripted",
            (6, "agent.guardrails.input[1].model"),
        ),
    ],
)
def test_bedrock_without_its_packages_is_told_where_it_is_chosen(
    tmp_path: Path, spec: str, provider: Provider, where: tuple[int, str]
) -> None:
    found, llm = agent(tmp_path, spec), Settings(llm=LlmSettings(provider=provider))
    (problem,) = told(check.models(found, check.Providers(llm, has_aws=False)))
    assert problem == (*where, "the provider bedrock needs AWS' packages")
    assert told(check.models(found, check.Providers(llm, has_aws=True))) == []


@pytest.mark.parametrize(("is_chosen", "is_warning"), [(True, True), (False, False)])
def test_a_model_beside_the_demo_is_a_fault_unless_the_demo_was_asked_for(
    tmp_path: Path, is_chosen: bool, is_warning: bool
) -> None:
    llm = Settings(llm=LlmSettings(provider="scripted", is_chosen=is_chosen))
    (problem,) = check.models(agent(tmp_path, "  llm: {model: claude}\n"), check.Providers(llm, has_aws=True))
    assert (problem.line, problem.is_warning) == (3, is_warning)


def test_agents_that_may_be_called_must_be_others_that_there_are(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text("agent: {name: researcher}\n", encoding="utf-8")
    (tmp_path / "c.yaml").write_text("agent: {name: broken, tools: 7}\n", encoding="utf-8")
    names = ("researcher", "reseacher", "a", "news:writer", "broken", "default", "zzz")
    found = agent(tmp_path, "  may_call:\n" + "".join(f"  - {name}\n" for name in names))
    problems = list(check.called(found, load(tmp_path), others={"news:writer"}))
    assert [(problem.line, problem.field, problem.fix) for problem in problems] == [
        (5, "agent.may_call[1]", "did you mean researcher?"),
        (6, "agent.may_call[2]", "take it out"),
        (8, "agent.may_call[4]", ""),
        (10, "agent.may_call[6]", "take it out, or add its file to LOOM_AGENTS_DIR"),
    ]
    texts = [problem.text for problem in problems]
    assert texts[:2] == ["there is no agent 'reseacher'", "an agent cannot call itself"]
    assert texts[2].startswith("The agent 'broken' cannot work, its file is broken: ")
    assert [problem.is_warning for problem in problems] == [False] * 4


def test_variables_are_found_wherever_they_stand_and_prompts_may_hold_them(tmp_path: Path) -> None:
    spec = "  system_prompt: Say ${NAME}.\n  mcp_servers:\n    files:\n      url: https://h/mcp\n      headers:\n"
    spec += "        X: '${TOKEN}'\n        Y: $5\n  backend:\n    url: 'sqlite:///{{ home }}/x.db'\n"
    assert [each[:2] for each in told(check.placeholders(agent(tmp_path, spec)))] == [
        (11, "agent.backend.url"),
        (8, "agent.mcp_servers.files.headers.X"),
    ]


def test_problems_come_once_what_cannot_work_first_and_by_place() -> None:
    late, early = Problem("b", file="/b.yaml", line=9), Problem("a", file="/a.yaml", line=10)
    first, warning = Problem("c", file="/a.yaml", line=9), Problem("w", file="/a.yaml", line=1, is_warning=True)
    variable = Problem("v", field="LOOM_X")
    assert in_order([late, warning, early, first, late, variable]) == (variable, first, early, late, warning)
