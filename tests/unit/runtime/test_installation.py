import contextlib
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from loom_worker.agents.load import load
from loom_worker.core.settings import from_env
from loom_worker.core.sqlite_driver import sqlite3
from loom_worker.core.values.agents import Agent
from loom_worker.core.values.problems import Problem
from loom_worker.runtime.installation import Found, Inspection, side_by_side
from loom_worker.store.database import Database
from tests.support.registry import made_components

HEAD = "apiVersion: loom/v1\nkind: Agent\nmetadata: {name: a}\nspec:\n"
SERVER = Path(__file__).parents[2] / "support" / "mcp_servers" / "sdk.py"

Told = Callable[..., list[str]]


@pytest.fixture
def told(tmp_path: Path) -> Told:
    """The problems of an agent whose ``spec`` begins on line 5, those of its file without the folder's name."""

    def told(spec: str, *, reaches_out: bool = False, **env: str) -> list[str]:
        (tmp_path / "a.yaml").write_text(HEAD + spec, encoding="utf-8")
        settings = from_env({"LOOM_HOME": str(tmp_path / "home"), "LOOM_AGENTS_DIR": str(tmp_path), **env})
        agents = load(settings.agents_dir)
        database = Database(settings.database_url)
        made = made_components(settings, agents, database)
        look = Inspection(settings, made.registry, calls_model=True, reaches_out=reaches_out)
        try:
            return [str(problem).replace(f"{tmp_path}/", "") for problem in look.problems(agents)]
        finally:
            made.close()
            database.close()

    return told


def test_an_installation_without_fault_has_no_problem_and_makes_nothing(told: Told, tmp_path: Path) -> None:
    names = "list_tables, get_schema, execute_sql, load_pattern, list_patterns, read_skill_file, search_conversation"
    assert (
        told(f"  tools: [{names}, update_session_context]\n  config: {{approval: {{tools: ['*', execute_sql]}}}}") == []
    )
    assert not (tmp_path / "home").exists()


def test_a_tool_that_is_not_there_is_told_with_the_line_of_its_entry(told: Told) -> None:
    assert told("  tools:\n    - list_tables\n    - execute_sqll\n    - '*'\n    - files__read\n    - zzz\n") == [
        "a.yaml:7: agent a: spec.tools[1]: there is no tool 'execute_sqll'; did you mean execute_sql?",
        "a.yaml:8: agent a: spec.tools[2]: there is no tool '*'; there are no patterns of names; leave the list out "
        "for all tools",
        "a.yaml:9: agent a: spec.tools[3]: there is no tool 'files__read'; mcp_servers has no 'files'",
        "a.yaml:10: agent a: spec.tools[4]: there is no tool 'zzz'; take it out, or name the file or package that has "
        "it (docs/tools.md)",
    ]


def test_sorted_tools_and_those_that_need_approval_are_looked_at_alike(told: Told) -> None:
    spec = "  tools:\n    builtin: [get_schema,\n      get_shema]\n    custom: [my_tool]\n"
    spec += "  config:\n    approval:\n      tools: [execute_sgl]\n"
    assert [each.partition(";")[0] for each in told(spec)] == [
        "a.yaml:7: agent a: spec.tools.builtin[1]: there is no tool 'get_shema'",
        "a.yaml:11: agent a: spec.config.approval.tools[0]: there is no tool 'execute_sgl'",
        "a.yaml:8: agent a: spec.tools.custom[0]: there is no tool 'my_tool'",
    ]


def test_a_root_agent_is_told_with_its_own_paths(told: Told, tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text("agent:\n  name: b\n  tools: [x1]\n", encoding="utf-8")
    assert told("  {}")[0].startswith("b.yaml:3: agent b: agent.tools[0]: there is no tool 'x1'")


def test_an_agent_that_may_call_what_is_not_there_is_told_wherever_it_is_defined(told: Told, tmp_path: Path) -> None:
    folder = tmp_path / "workflows"
    folder.mkdir()
    (folder / "news.yaml").write_text(
        "apiVersion: loom/v1\nkind: Workflow\nmetadata: {name: news}\nspec:\n  type: pipeline\n  initial_prompt: Hi\n"
        "  stages: [{agent_id: writer, prompt_template: x}]\n  agents:\n  - id: writer\n"
        "    system_prompt: Write.\n    may_call: [a, b]\n",
        encoding="utf-8",
    )
    assert told("  may_call:\n  - defualt\n  - news:writer\n", LOOM_WORKFLOWS_DIR=str(folder)) == [
        "a.yaml:6: agent a: spec.may_call[0]: there is no agent 'defualt'; did you mean default?",
        "workflows/news.yaml:11: agent news:writer: agent.may_call[1]: there is no agent 'b'; take it out, or add its "
        "file to LOOM_AGENTS_DIR",
    ]


def test_a_listed_tool_that_an_agent_that_only_reads_cannot_have_is_a_warning(told: Told, tmp_path: Path) -> None:
    tool = "from loom_worker.tools.declare import tool\n\n@tool\ndef pay() -> str:\n    'Pays.'\n    return ''\n"
    (tmp_path / "mine.py").write_text(tool, encoding="utf-8")
    (problem,) = told("  config: {read_only: true}\n  tools:\n    - mine.py\n    - pay\n")
    assert problem.startswith("a.yaml:8: agent a: spec.tools[1]: the tool 'pay' changes something")


@pytest.mark.parametrize(
    ("tools", "path"),
    [
        ("tools: [list_tables]", "spec.tools, as files__<tool>"),
        ("tools: {mcp: [{server: other}]}", "spec.tools.mcp"),
        ("tools: {mcp: [{server: other}, {server: files, tools: []}]}", "spec.tools.mcp"),
    ],
)
def test_a_server_whose_tools_no_list_names_is_told(told: Told, tools: str, path: str) -> None:
    servers = f"  mcp_servers:\n    other: {{command: {sys.executable}}}\n    files: {{command: {sys.executable}}}\n"
    problems = [each for each in told(f"{servers}  {tools}\n") if "'files'" in each]
    assert len(problems) == 1
    assert problems[0].startswith("a.yaml:7: agent a: spec.mcp_servers.files: no list names a tool of the MCP server")
    assert problems[0].endswith(path)


@pytest.mark.parametrize(
    "tools", ["tools: [files__read]", "config: {}", "tools: {mcp: [{server: files}]}", "tools: {}"]
)
def test_a_server_that_is_named_or_not_restricted_is_not_told(told: Told, tools: str) -> None:
    assert told(f"  mcp_servers: {{files: {{command: {sys.executable}}}}}\n  {tools}\n") == []


def test_what_a_server_lacks_to_be_started_is_told_at_its_own_line(told: Told) -> None:
    spec = "  mcp_servers:\n    files:\n      command: no-such-command\n      env:\n        TOKEN: {secret: FILES}\n"
    assert told(spec, reaches_out=True) == [
        "a.yaml:7: agent a: spec.mcp_servers.files.command: the command 'no-such-command' is not installed, or not on "
        "the PATH",
        "a.yaml:9: agent a: spec.mcp_servers.files.env.TOKEN: it needs a secret that is not there: set "
        "LOOM_SECRET_FILES",
    ]


@pytest.mark.heavy
def test_a_server_is_asked_for_its_tools_and_names_it_has_not_are_told(told: Told) -> None:
    spec = f"  mcp_servers:\n    sdk:\n      command: {sys.executable}\n      args: [{SERVER}, stdio]\n"
    spec += "      tools:\n        - nothing\n"
    problems = told(f"{spec}  tools: [sdk__nothing]\n", reaches_out=True)
    assert problems[0].startswith(
        "a.yaml:10: agent a: spec.mcp_servers.sdk.tools[0]: MCP server 'sdk': it has no usable"
    )
    assert told(f"{spec}  tools: [sdk__nothing]\n", reaches_out=False) == []


def test_a_server_that_ends_at_once_is_told_and_its_tools_are_not_called_unknown(told: Told) -> None:
    servers = f"  mcp_servers:\n    gone: {{command: {sys.executable}, args: ['-c', '']}}\n"
    (problem,) = told(f"{servers}  tools: [gone__read]\n", reaches_out=True)
    assert problem.startswith("a.yaml:6: agent a: spec.mcp_servers.gone: MCP server 'gone': ")


@pytest.mark.parametrize(
    ("backend", "told_of"),
    [
        ("{type: sql,\n    url: 'sqlite:////no/such.db'}", "6: agent a: spec.backend.url: /no/such.db: no such file"),
        ("{url: 'duckdb:////no/such.duckdb'}", "5: agent a: spec.backend.url: /no/such.duckdb: no such file"),
        ("\n    url: oracle://h/x", "6: agent a: spec.backend.url: oracle is not served"),
        ("\n    url: mysql+nodriver://h/x", "6: agent a: spec.backend.url: no driver for mysql+nodriver: pip install"),
        ("\n    type: documents\n    path: papers", "7: agent a: spec.backend.path: papers: no such folder"),
        ("\n    type: rest\n    openapi: shop.json", "7: agent a: spec.backend.openapi: shop.json: No such file"),
        (
            "\n    type: rest\n    openapi: o\n    auth: {\n     secret: S}",
            "9: agent a: spec.backend.auth.secret: LOOM_SEC",
        ),
        ("\n    url: 'sqlite:///${DB}'", "6: agent a: spec.backend.url: ${DB} stays as it is"),
        (
            "\n    url: 'sqlite:///{here}/a.yaml'\n    scope:\n      databases: [\n       /no.db]",
            "9: agent a: spec.backend.scope.databases[0]: /no.db: no such file",
        ),
    ],
)
def test_data_that_cannot_be_opened_is_told_at_its_line(told: Told, tmp_path: Path, backend: str, told_of: str) -> None:
    problems = told(f"  backend: {backend.replace('{here}', str(tmp_path))}\n")
    assert any(problem.startswith(f"a.yaml:{told_of}") for problem in problems), problems


@pytest.mark.heavy
def test_paths_in_an_agents_file_begin_there(told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("data/shop.db", "data/last year?.db", "elsewhere/started.db"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        with contextlib.closing(sqlite3.connect(tmp_path / name)) as connection:
            connection.execute("CREATE TABLE t (id INTEGER)")
    monkeypatch.chdir(tmp_path / "elsewhere")
    (tmp_path / "server.sh").write_text(f'#!/bin/sh\nexec "{sys.executable}" "{SERVER}" stdio\n', encoding="utf-8")
    (tmp_path / "server.sh").chmod(0o755)
    spec = f"  mcp_servers: {{sdk: {{command: ./server.sh}}}}\n  backend:\n    url: sqlite:///../{tmp_path.name}/data/"
    spec += "shop.db?mode=ro\n    scope: {tables: [t], databases: ['data/last year?.db', data/shop.db]}\n"
    assert told(spec, reaches_out=True) == []
    assert told("  backend: {scope: {tables: [t]}}", reaches_out=True, LOOM_BACKEND_URL="sqlite:///started.db") == []
    missing = "a.yaml:5: agent a: spec.backend.url: started.db: no such file"
    assert told("  backend: {url: 'sqlite:///started.db'}") == [missing]


def test_an_operation_that_the_service_has_not_is_told_at_its_entry(told: Told, tmp_path: Path) -> None:
    (tmp_path / "o.yaml").write_text("openapi: 3.0.0\ninfo: {title: t, version: '1'}\npaths: {}\n", encoding="utf-8")
    spec = "  backend:\n    type: rest\n    url: https://example.com\n    openapi: o.yaml\n"
    spec += "    operations:\n      - get\n"
    (problem,) = told(f"{spec}  tools: [get_it]\n")
    assert problem.startswith("a.yaml:10: agent a: spec.backend.operations[0]: the API has no operation 'get'")


def test_an_operation_that_cannot_be_served_is_told_once_and_costs_no_other(told: Told, tmp_path: Path) -> None:
    paths = "  /a: {get: {operationId: a}}\n  /b: {get: {parameters: [{$ref: 'b.yaml#/x'}]}}\n"
    (tmp_path / "o.yml").write_text(f"openapi: 3.2.0\ninfo: {{title: t}}\npaths:\n{paths}", encoding="utf-8")
    spec = "  backend:\n    type: rest\n    url: https://example.com\n    openapi: o.yml\n  tools: [a]\n"
    (problem,) = (each for each in told(spec) if "o.yml: #/paths" in each)
    assert problem.startswith("a.yaml:8: agent a: spec.backend.openapi: o.yml: #/paths/~1b/get/parameters/0: $ref")


def test_a_file_that_is_no_database_is_found_when_it_is_connected_to(told: Told, tmp_path: Path) -> None:
    spec = f"  backend:\n    url: sqlite:///{tmp_path}/a.yaml\n"
    assert told(spec) == []
    (problem,) = told(spec, reaches_out=True)
    assert problem.startswith("a.yaml:6: agent a: spec.backend.url: ")


def test_what_a_scope_names_and_the_database_has_not_is_told_at_its_entry(told: Told, tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "x.db")) as connection:
        connection.execute("CREATE TABLE orders (id INTEGER, city TEXT)")
    spec = f"  backend:\n    url: sqlite:///{tmp_path}/x.db\n    scope:\n      tables: [Orders,\n        orderz]\n"
    spec += "      columns:\n        - orders.city\n        - orders.town\n"
    assert told(spec) == []
    assert told(spec, reaches_out=True) == [
        "a.yaml:9: agent a: spec.backend.scope.tables[1]: the database has no table 'orderz'",
        "a.yaml:12: agent a: spec.backend.scope.columns[1]: the database has no column 'orders.town'",
    ]


def test_a_folder_without_agents_files_is_told_and_is_no_error(told: Told, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (problem,) = told("  {}", LOOM_AGENTS_DIR=str(tmp_path / "empty"))
    assert problem.startswith("LOOM_AGENTS_DIR: no file of empty ends in .yaml")


def test_the_data_of_the_settings_is_told_once_and_without_an_agent(told: Told) -> None:
    assert told("  {}", LOOM_BACKEND_URL="sqlite:////no/such.db") == [
        "LOOM_BACKEND_URL: /no/such.db: no such file; set LOOM_BACKEND_URL, or mend what it names"
    ]


def test_a_python_file_that_cannot_be_imported_is_told_with_both_places(told: Told, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("x = 1\nimport no_such_module\n", encoding="utf-8")
    (problem,) = told("  tools:\n    - list_tables\n    - mine.py\n")
    assert problem.startswith("a.yaml:7: agent a: spec.tools[1]: mine.py:2: ModuleNotFoundError: ")
    (problem,) = told("  tools:\n    custom:\n      - mine.py:x\n")
    assert problem.startswith("a.yaml:7: agent a: spec.tools.custom[0]: mine.py:2: ModuleNotFoundError: ")


def test_names_of_other_systems_are_warnings_though_they_could_be_modules(told: Told, tmp_path: Path) -> None:
    """Warnings stand last: a module that is there and has no such tool, or cannot be imported, is a fault."""
    (tmp_path / "broken.py").write_text("import no_such_module\n", encoding="utf-8")
    names = "web.search, functions.exec, openai.file_search, mcp.github.create_issue, agent:researcher, browser.click"
    names += ", calendar.create_event, Bash(python run.py:*), json:nothing, loom_worker.gone:tool, broken.py:x, gone.py"
    found = told("  tools:\n" + "".join(f"    - '{name}'\n" for name in names.split(", ")))
    assert [int(each.split(":")[1]) for each in found] == [14, 15, 16, 17, *range(6, 14)]


def test_an_argument_that_models_see_under_another_name_is_told_as_a_warning(told: Told, tmp_path: Path) -> None:
    tool = "from loom_worker import tool\n\n@tool\ndef stock(größe: int) -> str:\n    'Stock.'\n    return ''\n"
    (tmp_path / "one.py").write_text(tool, encoding="utf-8")
    (problem,) = told("  tools:\n    - one.py\n")
    assert problem.startswith("a.yaml:5: agent a: spec.tools: tool 'stock': 'größe' is shown to models as grosse_")


@pytest.mark.parametrize("name", ["execute_sql", "search_conversation", "pay"])
def test_a_python_tool_whose_name_is_taken_is_told(told: Told, tmp_path: Path, name: str) -> None:
    tool = f"from loom_worker.tools.declare import tool\n\n@tool\ndef {name}() -> str:\n    'Pays.'\n    return ''\n"
    (tmp_path / "one.py").write_text(tool, encoding="utf-8")
    (tmp_path / "two.py").write_text(tool.replace(name, "pay"), encoding="utf-8")
    problems = told("  tools:\n    - two.py\n    - one.py\n")
    assert len(problems) == 1
    assert problems[0].startswith(f"a.yaml:7: agent a: spec.tools[1]: one.py: a tool is named '{name}' already")


@pytest.mark.parametrize(
    ("spec", "env", "told_of"),
    [
        (
            "  llm:\n    provider: anthropic\n    model: m\n",
            {},
            "6: agent a: spec.llm.provider: the provider anthropic has",
        ),
        ("  llm:\n    model: claude\n", {}, "6: agent a: spec.llm.model: 'claude' is named without a key"),
        ("  llm:\n    provider: ollama\n", {}, "6: agent a: spec.llm.provider: no model is named, and 'scripted-demo'"),
        (
            "  compressor_llm:\n    provider: anthropic\n    model: m\n",
            {},
            "6: agent a: spec.compressor_llm.provider: the provider anthropic has no key",
        ),
        (
            "  compressor_llm:\n    provider: ollama\n",
            {},
            "6: agent a: spec.compressor_llm.provider: no model is named, and the agent's own",
        ),
        ("  llm: {model: '${MODEL}'}\n", {"ANTHROPIC_API_KEY": "k"}, "5: agent a: spec.llm.model: ${MODEL} stays"),
    ],
)
def test_a_model_that_nobody_can_answer_with_is_told(told: Told, spec: str, env: dict[str, str], told_of: str) -> None:
    (problem,) = told(spec, **env)
    assert problem.startswith(f"a.yaml:{told_of}")


@pytest.mark.parametrize(
    ("spec", "env"),
    [
        ("  llm: {provider: anthropic, model: m}\n", {"ANTHROPIC_BASE_URL": "http://h"}),
        ("  llm: {model: claude}\n", {"ANTHROPIC_API_KEY": "k"}),
        ("  llm: {provider: scripted, model: any}\n", {}),
        ("  llm: {model: scripted-demo+5ms}\n", {}),
    ],
)
def test_a_model_that_can_answer_is_not_told(told: Told, spec: str, env: dict[str, str]) -> None:
    assert told(spec, **env) == []


def test_problems_of_settings_and_files_stand_in_the_same_list(told: Told, tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text("agent: {name: [\n", encoding="utf-8")
    problems = told("  tools: [nosuch]\n  memry: 1\n", LOOM_MODLE="x")
    assert [each.partition(" ")[0] for each in problems] == ["LOOM_MODLE:", "b.yaml:1:", "a.yaml:5:", "a.yaml:6:"]
    assert "did you mean LOOM_MODEL?" in problems[0]
    assert "spec.memry: unknown key; did you mean memory?" in problems[3]


@dataclass(frozen=True)
class Slow:
    """A source that answers when it is let; one that is never let is late."""

    agent: Agent
    gate: threading.Event

    def found(self) -> Found:
        self.gate.wait()
        if self.agent.name == "bad":
            raise ZeroDivisionError("oh")
        return Found()

    def failed(self, why: str) -> Found:
        return Found(problems=(Problem(why),))


def test_a_source_that_is_silent_or_breaks_keeps_no_other_from_being_told() -> None:
    never, now = threading.Event(), threading.Event()
    now.set()
    looks = [Slow(Agent("a"), never), Slow(Agent("bad"), now), Slow(Agent("c"), now)]
    found = [[problem.text for problem in each.problems] for each in side_by_side(looks, 0.5)]
    never.set()
    assert found == [["did not end within 0.5 s"], ["failed: ZeroDivisionError: oh"], []]
