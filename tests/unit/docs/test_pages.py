import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import click
import pytest

from loom_worker import __version__
from loom_worker.agents import check
from loom_worker.agents import load as agents
from loom_worker.blobs import memory
from loom_worker.cli import talk
from loom_worker.cli.main import COMMANDS, main
from loom_worker.core.values import guardrails
from loom_worker.core.values.agent_messages import KINDS, MessageStatus
from loom_worker.guard import limits
from loom_worker.lanes import keys
from loom_worker.llm import prices
from loom_worker.patterns import events, library, lint
from loom_worker.store import schema
from loom_worker.tools.agent_tools import Peers, agent_tools
from loom_worker.workflows import load as workflows
from tests.unit.docs.pages import FENCED, PROMISE, ROOT, command_lines, pages, text
from web.app import OPERATIONS
from web.openapi import document

HEAD = "apiVersion: loom/v1\nkind: Agent\nmetadata: {name: x}\n"
NO_FILE_OF_LOOM = (
    "openapi: 3.1.0",
    "# yaml-language-server: $schema=../../loom_worker/patterns/schemas/pattern-library",
)
"""Beginnings of YAML that no file of agents, workflows or patterns holds: an API's document, and a comment alone."""
YAML = {
    f"{path.relative_to(ROOT)}:{n}": body
    for path in pages()
    for n, (language, body) in enumerate(FENCED.findall(path.read_text(encoding="utf-8")))
    if language == "yaml" and not body.startswith(NO_FILE_OF_LOOM)
}
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
LOOM = re.compile(r"(?:^|(?<=\s)|(?<=/))loom ([a-z]+)(.*)")
PAGES = [str(path.relative_to(ROOT)) for path in pages()]


@pytest.mark.cases("page", PAGES)
def test_every_relative_link_leads_to_a_file(page: str) -> None:
    links = [link for link in LINK.findall(text(page)) if "://" not in link]
    assert [link for link in links if not ((ROOT / page).parent / link).exists()] == []


@pytest.mark.cases("page", PAGES)
def test_every_make_target_exists(page: str) -> None:
    targets = set(re.findall(r"^([a-z]+):", text("Makefile"), re.MULTILINE))
    told = [found for line in command_lines(text(page)) for found in re.findall(r"^make ([a-z]+)", line)]
    assert set(told) <= targets


@pytest.mark.cases("page", PAGES)
def test_every_loom_command_and_its_options_exist(page: str) -> None:
    wrong = []
    for line in command_lines(text(page)):
        if (found := LOOM.search(line)) is None or not line.startswith((found[0], ".venv/bin/loom", "exec ")):
            continue
        command = main.get_command(click.Context(main), found[1])
        parts = [command, *getattr(command, "commands", {}).values()] if command else []
        known = {opt for part in parts for parameter in part.params for opt in parameter.opts}
        options = re.findall(r"--[a-z0-9-]+", found[2].partition("|")[0])
        wrong += [line] if command is None or not known.issuperset(set(options) - {"--help"}) else []
    assert wrong == []


def test_the_readme_fits_a_screen_and_keeps_the_promise_word_for_word() -> None:
    readme = text("README.md")
    assert len(readme.splitlines()) <= 80
    assert f"> {PROMISE}\n" in readme
    assert f"> {PROMISE}\n" in text("docs/guarantees.md")


def test_each_sentence_of_the_promise_has_a_section_of_its_own() -> None:
    sections = [line.strip('# "') for line in text("docs/guarantees.md").splitlines() if line.startswith('## "')]
    assert " ".join(sections).replace("once LLM", "once; LLM") == PROMISE


def test_every_test_that_the_guarantees_name_exists() -> None:
    told = re.findall(r"`(test_\w+)`", text("docs/guarantees.md"))
    known = {name for path in (ROOT / "tests").rglob("test_*.py") for name in _functions(path)}
    assert told
    assert sorted(set(told) - known) == []


def test_every_endpoint_is_shown_and_every_shown_one_exists() -> None:
    paths = document(OPERATIONS)["paths"]
    served = {(method.upper(), _shape(path)) for path, ways in paths.items() for method in ways}
    shown = set(_curls(text("docs/http.md")))
    assert sorted(shown - served) == []
    assert sorted(served - shown) == [("GET", "/"), ("GET", "/docs"), ("GET", "/openapi.json")]


@pytest.mark.cases("block", YAML)
def test_every_yaml_of_the_pages_is_read_without_a_complaint(tmp_path: Path, block: str) -> None:
    content = (
        YAML[block] if YAML[block].lstrip("#").startswith(("api", "kind", " yaml", "as_of")) else HEAD + YAML[block]
    )
    (folder := tmp_path / "support").mkdir(exist_ok=True)
    (folder / "x.yaml").write_text(content, encoding="utf-8")
    if "kind: Workflow" in content:
        found: Any = workflows.load(folder)
        assert (found.problems, len(found.workflows)) == ((), 1)
    elif "as_of:" in content:
        assert prices.read(folder / "x.yaml")
    elif "templates:" in content or "PatternLibrary" in content:
        assert (lint.lint(tmp_path), bool(library.load(tmp_path).patterns)) == ((), True)
    else:
        found = agents.load(folder)
        mine = [agent for agent in found.agents.values() if agent.source.startswith(str(folder))]
        tools = {name: True for agent in mine for _, name in check.listed(agent)}
        wrong = [
            each for agent in mine for each in (*check.tools(agent, check.Inventory(tools)), *check.placeholders(agent))
        ]
        assert (found.problems, wrong, bool(mine)) == ((), [], True)


def test_the_guardrails_page_lists_every_word_of_a_rule() -> None:
    told = re.findall(r"`(\w+)`", text("docs/guardrails.md").partition("The words for `find`")[2].partition(":\n")[0])
    assert {*told} == {*guardrails.KINDS, guardrails.PERSONAL, *guardrails.OTHER_WORDS, *guardrails.ACTIONS, "action"}


def test_the_page_of_agents_that_work_together_has_every_kind_status_and_argument() -> None:
    page = text("docs/agents-together.md")
    missing = [kind for kind in KINDS if f"`{kind}`" not in page]
    missing += [status for status in get_args(MessageStatus) if f"| `{status}` |" not in page]
    unused: Any = None
    tools = agent_tools(Peers({"a": ""}, is_called=True), unused)
    for tool in tools:
        [row] = [line for line in page.splitlines() if line.startswith(f"| `{tool.spec.name}(")]
        missing += [name for name in tool.spec.input_schema["properties"] if not re.search(rf"\b{name}\b", row)]
    assert (len(tools), missing) == (4, [])


def test_the_architecture_names_every_table_and_every_key() -> None:
    page = text("docs/architecture.md")
    assert [name for name in schema.metadata.tables if f"| `{name}` |" not in page] == []
    names = [keys.LEASES, keys.WORKERS, keys.MEMORY_SINCE, keys.SWEEP, keys.lane("<lane>"), keys.lease("<lane>")]
    names += [keys.sent("<what>"), keys.worker("<worker>"), keys.UNCLAIMED]
    names += [f"{limits.HASH}<name>", limits.NAMES, f"{limits.TIMES}<name>", "loom:mcp:<key>"]
    names += [f"{memory.PREFIX}<ref>", memory.INDEX, memory.TOTAL]
    names += [f"{events.AT}<process>"]
    assert [name for name in names if f"| `{name}` |" not in page] == []


def test_every_decision_has_its_four_parts_and_is_listed() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = text("docs/decisions/README.md")
    for path in folder.glob("0*.md"):
        page = path.read_text(encoding="utf-8")
        parts = [f"**{part}.**" for part in ("Context", "Decision", "Consequences", "Refused")]
        assert [part for part in parts if part not in page] == [], path.name
        assert f"({path.name})" in listed
        assert page.startswith(f"# {path.name[:4]} ")


def test_the_changelog_knows_this_version() -> None:
    assert f"## [{__version__}]" in text("CHANGELOG.md")


def test_the_map_of_packages_is_complete() -> None:
    packages = {path.parent.name for path in (ROOT / "loom_worker").glob("*/__init__.py")}
    page = text("docs/architecture.md")
    assert sorted(package for package in packages if f"(../loom_worker/{package})" not in page) == []


def test_every_command_is_known_to_the_tests_above() -> None:
    told = {found[1] for line in command_lines(text("docs/commands.md")) if (found := LOOM.match(line))}
    assert told >= set(COMMANDS)


def test_the_chats_commands_stand_in_the_docs_as_its_help_has_them() -> None:
    assert f"```text\n{talk.HELP}\n```" in text("docs/commands.md")


def _functions(path: Path) -> list[str]:
    return re.findall(r"^ *(?:async )?def (\w+)\(", path.read_text(encoding="utf-8"), re.MULTILINE)


def _shape(path: str) -> str:
    return re.sub(r"\{[^}]*\}", "*", path)


def _curls(page: str) -> Iterator[tuple[str, str]]:
    """Method and path of each curl example; names of single things become ``*``."""
    for line in page.splitlines():
        if (found := re.search(r"curl .*?127\.0\.0\.1:8000(/[^\s\"?]*)", line)) is None:
            continue
        method = re.search(r"-X (\w+)", line)
        named = r"\$\w+|(?<=/sessions/)[^/]+|(?<=/agents/)[^/]+|(?<=/patterns/)(?!match$).+"
        named += r"|(?<=/workflows/)[^/]+|(?<=/approvals/)[^/]+"
        path = re.sub(named, "*", found[1])
        yield method[1] if method else "GET", path
