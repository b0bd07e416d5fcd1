from pathlib import Path

import pytest

from loom_worker.agents.load import load
from loom_worker.core.errors import Invalid
from loom_worker.core.values.agents import Agent, Backend
from loom_worker.core.values.sessions import SessionPatch
from loom_worker.service.sessions import check, named

AGENT = Agent("analyst", backend=Backend(databases=("north.db", "south.db")))
TOOLS = ("execute_sql", "add")


def refused(patch: SessionPatch, agent: Agent = AGENT, tools: tuple[str, ...] = TOOLS) -> Invalid:
    with pytest.raises(Invalid) as caught:
        check(patch, agent, tools)
    return caught.value


@pytest.mark.cases(
    "patch",
    [
        SessionPatch(),
        SessionPatch(title="t", clear=frozenset({"tools", "backend"})),
        SessionPatch(tools=("add",), backend="south.db", agent="analyst@latest"),
        SessionPatch(tools=()),
    ],
)
def test_what_the_agent_has_may_be_chosen(patch: SessionPatch) -> None:
    check(patch, AGENT, TOOLS)


def test_every_tool_that_is_not_the_agents_is_pointed_at() -> None:
    error = refused(SessionPatch(tools=("add", "rm", "ls")))
    assert [flaw.pointer for flaw in error.flaws] == ["/tools/1", "/tools/2"]
    assert str(error) == "The agent 'analyst' does not allow that: its tools are add, execute_sql."


@pytest.mark.parametrize("backend", ["west.db", "", "north.db "])
def test_a_database_must_be_one_of_the_agents(backend: str) -> None:
    [flaw] = refused(SessionPatch(backend=backend)).flaws
    assert (flaw.pointer, flaw.detail) == ("/backend", "its databases are north.db, south.db")


def test_an_agent_that_has_nothing_to_choose_from_says_so() -> None:
    error = refused(SessionPatch(tools=("add",), backend="x"), Agent("bare"), ())
    assert [flaw.detail for flaw in error.flaws] == ["its tools are none", "its databases are none but its own"]


@pytest.mark.cases("agent", ["default@latest", "analyst", "analysts@2", "Analyst@latest"])
def test_a_session_keeps_its_agent(agent: str) -> None:
    [flaw] = refused(SessionPatch(agent=agent)).flaws
    assert flaw.pointer == "/agent"
    assert "versions of analyst" in flaw.detail


def test_an_agent_whose_file_does_not_parse_is_refused_with_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "sales.yaml").write_text("agent:\n  name: sales\n  tools: [a,\n", encoding="utf-8")
    with pytest.raises(Invalid, match=rf"its file is broken: {tmp_path}/sales\.yaml:3: ") as caught:
        named(load(tmp_path), "sales")
    assert [flaw.detail for flaw in caught.value.flaws] == ["its file is broken"]


def test_an_unknown_agent_beside_a_broken_file_is_told_of_that_file(tmp_path: Path) -> None:
    with pytest.raises(Invalid) as caught:
        named(load(tmp_path), "sales")
    assert str(caught.value) == "There is no agent 'sales'; there are: default."
    (tmp_path / "other.yaml").write_text("agent: {", encoding="utf-8")
    with pytest.raises(Invalid, match=rf"not known: {tmp_path}/other\.yaml:"):
        named(load(tmp_path), "sales")
