"""The section ``a2a`` of an agent's file."""

from pathlib import Path

import pytest

from loom_worker.agents import check
from loom_worker.agents.load import load
from loom_worker.core.values.agents import Agent, Auth, CardSkill, RemoteAgent

HEAD = "apiVersion: loom/v1\nkind: Agent\nmetadata: {name: far}\nspec:\n"


def read(folder: Path, spec: str) -> tuple[Agent | None, list[str]]:
    (folder / "far.yaml").write_text(HEAD + spec, encoding="utf-8")
    found = load(folder)
    return found.agents.get("far"), [str(problem) for problem in found.problems]


def test_an_agent_elsewhere_answers_alone(tmp_path: Path) -> None:
    spec = "  a2a: {url: https://far.example/agent, auth: {secret: FAR}, allow_private: true, timeout_seconds: 30}\n"
    agent, problems = read(tmp_path, spec)
    assert problems == []
    assert agent is not None
    assert agent.remote == RemoteAgent("https://far.example/agent", Auth("bearer", "FAR"), True, 30.0)
    assert (agent.backend, agent.tools, agent.patterns_enabled, agent.skills_enabled) == (None, (), False, False)


def test_skills_are_what_the_card_shows_of_any_agent(tmp_path: Path) -> None:
    skill = "{id: sales, name: Sales, description: About orders, tags: [sql], examples: [Best month?]}"
    agent, problems = read(tmp_path, f"  a2a: {{skills: [{skill}]}}\n")
    assert problems == []
    assert agent is not None
    assert agent.card_skills == (CardSkill("sales", "Sales", "About orders", ("sql",), ("Best month?",)),)
    assert (agent.remote, agent.patterns_enabled) == (None, True)


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("  a2a: {url: far.example}\n", "a2a.url"),
        ("  a2a: {auth: {secret: FAR}}\n", "a2a.url"),
        ("  a2a: {url: 'https://far.example', auth: {type: bearer}}\n", "a2a.auth.secret"),
        ("  a2a: {url: 'https://far.example', timeout_seconds: soon}\n", "a2a.timeout_seconds"),
        ("  a2a: {url: 'https://far.example'}\n  tools: [clock]\n", "tools"),
        ("  a2a: {url: 'https://far.example'}\n  system_prompt: Be brief.\n", "system_prompt"),
        ("  a2a: {skills: [{id: x}]}\n", "a2a.skills[0].name"),
    ],
)
def test_what_cannot_be_meant_is_told_with_its_place(tmp_path: Path, spec: str, told: str) -> None:
    agent, problems = read(tmp_path, spec)
    assert agent is None
    assert len(problems) == 1
    assert f"spec.{told}" in problems[0]


@pytest.mark.parametrize(
    ("url", "secrets", "told"),
    [
        ("https://far.example", {"FAR": "x"}, []),
        ("https://far.example", {}, ["LOOM_SECRET_FAR is not set"]),
        ("http://far.example", {"FAR": "x"}, ["unencrypted"]),
    ],
)
def test_its_secret_must_be_there_and_is_not_sent_in_the_open(
    tmp_path: Path, url: str, secrets: dict[str, str], told: list[str]
) -> None:
    agent, _ = read(tmp_path, f"  a2a: {{url: '{url}', auth: {{secret: FAR}}}}\n")
    assert agent is not None
    found = [str(problem) for problem in check.remote(agent, secrets)]
    assert len(found) == len(told)
    assert all(each in problem for each, problem in zip(told, found, strict=True))
