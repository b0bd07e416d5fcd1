from pathlib import Path

import pytest

from loom_worker.agents.load import Agents, load
from loom_worker.core.values.agents import PROVIDERS, Backend, ModelChoice
from loom_worker.core.values.memory import MemoryPolicy

HEAD = "apiVersion: loom/v1\nkind: Agent\nmetadata: {name: a}\n"
FULL = """
apiVersion: loom/v1
kind: Agent
metadata: {name: analyst, version: 2, description: Counts., labels: {team: x}}
spec:
  backend: {type: sql, url: "sqlite:///x.db", scope: {databases: [y.db, z.db]}}
  llm:
    provider: anthropic
    model: some-model
    max_tokens: 100
    max_context_tokens: 1000
    reserved_output_tokens: 50
    stop_sequences: [STOP]
  compressor_llm: {provider: anthropic, model: small-model, max_context_tokens: 500}
  memory: {memory_compression: {workload_profile: balanced}, swap: {enabled: false}}
  tools: [list_tables, execute_sql]
  system_prompt: Be brief.
  config:
    max_turns: 3
    max_tool_executions: 7
    timeout_seconds: 12.5
    patterns: {enabled: false, min_confidence: 0.3, max_patterns_per_turn: 2}
"""


def agents(folder: Path, *texts: str) -> Agents:
    for n, text in enumerate(texts):
        (folder / f"{n}.yaml").write_text(text, encoding="utf-8")
    return load(folder)


def told(found: Agents) -> list[str]:
    return [str(problem) for problem in found.problems]


def test_the_default_agent_is_there_without_any_file() -> None:
    found = load(None)
    assert set(found.agents) == {"default"}
    assert found.problems == ()
    default = found.agents["default"]
    assert all(name in default.system_prompt for name in ("list_tables", "get_schema", "execute_sql", "<pattern>"))
    assert default.tools is None
    assert default.max_llm_calls is None


def test_every_field_arrives(tmp_path: Path) -> None:
    found = agents(tmp_path, FULL)
    agent = found.agents["analyst"]
    assert found.problems == ()
    assert (agent.name, agent.version, agent.description) == ("analyst", "2", "Counts.")
    assert (agent.llm.provider, agent.llm.model, agent.max_tokens) == ("anthropic", "some-model", 100)
    assert (agent.max_context_tokens, agent.reserved_output_tokens) == (1000, 50)
    assert agent.stop_sequences == ("STOP",)
    assert agent.backend == Backend(url="sqlite:///x.db", databases=("y.db", "z.db"))
    assert agent.databases == ("y.db", "z.db")
    assert agent.compressor == ModelChoice("anthropic", "small-model", 500)
    assert agent.memory == MemoryPolicy(8, 4, None, 0.60, 0.75, (3, 5, 7), has_swap=False)
    assert agent.tools == ("list_tables", "execute_sql")
    assert agent.system_prompt == "Be brief."
    assert (agent.max_llm_calls, agent.max_tool_calls, agent.timeout_s) == (3, 7, 12.5)
    assert (agent.patterns_enabled, agent.min_confidence, agent.max_patterns_per_turn) == (False, 0.3, 2)
    assert agent.raw["metadata"]["labels"] == {"team": "x"}
    assert agent.source == f"{tmp_path}/0.yaml:2"


def test_a_root_agent_has_the_same_fields(tmp_path: Path) -> None:
    text = "agent:\n  name: flat\n  version: 3\n  system_prompt: Hi.\n  llm: {model: m}\n  config: {max_turns: 4}\n"
    agent = agents(tmp_path, text).agents["flat"]
    assert (agent.version, agent.system_prompt, agent.llm.model, agent.max_llm_calls) == ("3", "Hi.", "m", 4)
    assert agent.unknown_keys == ()


def test_what_is_not_said_is_left_to_the_process(tmp_path: Path) -> None:
    agent = agents(tmp_path, HEAD).agents["a"]
    assert (agent.llm.model, agent.max_llm_calls, agent.timeout_s, agent.tools) == (None,) * 4
    assert agent.backend == Backend()
    assert agent.patterns_enabled


def test_no_tool_at_all_is_not_every_tool(tmp_path: Path) -> None:
    assert agents(tmp_path, HEAD + "spec: {tools: []}").agents["a"].tools == ()


def test_an_agent_may_have_no_backend(tmp_path: Path) -> None:
    assert agents(tmp_path, HEAD + "spec: {backend: false}").agents["a"].backend is None


def test_further_words_on_the_compressor_and_the_scope_are_kept_without_effect(tmp_path: Path) -> None:
    spec = "{compressor_llm: {model: m, trace: 0, max_tokens: 9}, backend: {scope: {tables: [t], rows: 1}}}"
    found = agents(tmp_path, HEAD + f"spec: {spec}")
    assert found.agents["a"].compressor == ModelChoice(model="m")
    assert found.agents["a"].unknown_keys == ("spec.backend.scope.rows",)
    assert [(each.field, each.text) for each in found.problems[1:]] == [
        ("spec.compressor_llm.trace", "without effect yet"),
        ("spec.compressor_llm.max_tokens", "without effect yet"),
    ]


def test_unknown_keys_are_kept_and_told_with_their_path(tmp_path: Path) -> None:
    found = agents(tmp_path, HEAD + "extra: 1\nspec: {llm: {temprature: 0.1}, config: {patterns: {on: 1}}}")
    agent = found.agents["a"]
    assert set(agent.unknown_keys) == {"extra", "spec.llm.temprature", "spec.config.patterns.on"}
    assert agent.raw["extra"] == 1
    assert str(found.problems[0]) == f"{tmp_path}/0.yaml:4: agent a: extra: unknown key; it has no effect"
    assert all(problem.is_warning for problem in found.problems)


@pytest.mark.cases(
    ("spec", "reason"),
    [
        ("{llm: {max_tokens: many}}", "spec.llm.max_tokens: a whole number from 1 is needed, not 'many'"),
        ("{llm: {max_tokens: true}}", "spec.llm.max_tokens: a whole number from 1 is needed, not 'True'"),
        ("{llm: {max_tokens: 0}}", "spec.llm.max_tokens: a whole number from 1 is needed, not '0'"),
        ("{llm: {stop_sequences: x}}", "spec.llm.stop_sequences: a list of texts is needed, not 'x'"),
        ("{llm: [x]}", "spec.llm: a mapping is needed, not list"),
        ("{llm: {model: [x]}}", "spec.llm.model: a text is needed, not \"['x']\""),
        (
            "{llm: {provider: acme}}",
            "spec.llm.provider: one of " + ", ".join(PROVIDERS) + " is needed, not 'acme'",
        ),
        ("{tools: [x, 1]}", "spec.tools[1]: a text is needed, not '1'"),
        ("{config: {timeout_seconds: 0}}", "spec.config.timeout_seconds: a number above 0 is needed, not '0'"),
        ("{config: {timeout_seconds: .nan}}", "spec.config.timeout_seconds: a number above 0 is needed, not 'nan'"),
        ("{config: {patterns: {enabled: 1}}}", "spec.config.patterns.enabled: true or false is needed, not '1'"),
        (
            "{config: {patterns: {min_confidence: 15}}}",
            "spec.config.patterns.min_confidence: a number from 0 to 1 is needed, not '15'",
        ),
        ("text", "spec: a mapping is needed, not str"),
        ("{backend: {scope: {databases: x}}}", "spec.backend.scope.databases: a list of texts is needed, not 'x'"),
        (
            "{compressor_llm: {max_context_tokens: 0}}",
            "spec.compressor_llm.max_context_tokens: a whole number from 1 is needed, not '0'",
        ),
        ("{memory: on}", "spec.memory: a mapping is needed, not bool"),
    ],
)
def test_a_wrong_type_costs_that_agent_and_no_other(tmp_path: Path, spec: str, reason: str) -> None:
    found = agents(tmp_path, f"{HEAD}spec: {spec}\n---\n{FULL}")
    assert set(found.agents) == {"default", "analyst"}
    assert told(found) == [f"{tmp_path}/0.yaml:4: agent a: {reason}"]


def test_a_number_without_end_costs_its_own_agent(tmp_path: Path) -> None:
    found = agents(tmp_path, HEAD + f"spec: {{system_prompt: 0x{'f' * 9000}}}", FULL)
    assert set(found.agents) == {"default", "analyst"}
    assert told(found)[0].startswith(f"{tmp_path}/0.yaml:4: agent a: spec.system_prompt: a text is needed")


@pytest.mark.parametrize(
    "spec",
    [
        "budget: {tokens: 1000000000001}",
        "config: {timeout_seconds: 1.0e+13}",
        "budget: {month: {usd: 0xffffffffffff}}",
        f"llm: {{model: {'m' * 100_000}}}",
        f"system_prompt: x\n  {'k' * 100_000}: 1",
        "tools: [" + "look, " * 3_000 + "look]",
        "schedules: [" + "{name: a, cron: '@daily', input: x}, " * 1001 + "]",
        "schedule: {input: x, cron: '" + "1," * 50_000 + "1 * * * *'}",
    ],
    ids=lambda text: text[:24],
)
def test_what_no_agent_needs_so_much_of_is_refused_with_file_and_line(tmp_path: Path, spec: str) -> None:
    found = agents(tmp_path, HEAD + f"spec:\n  {spec}", FULL)
    assert set(found.agents) == {"default", "analyst"}
    [told_of] = told(found)
    assert told_of.startswith(f"{tmp_path}/0.yaml:")
    assert len(told_of) < 1_000


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("kind: Agent\nmetadata: {name: a}", "apiVersion: loom/v1 is needed, not nothing"),
        ("apiVersion: loom/v1\nkind: Workflow", "kind: Agent is needed, not Workflow"),
        ("apiVersion: loom/v1\nkind: Agent", "metadata.name: a name of letters, digits, '.', '_' and '-', at most 128"),
        ("agent: {name: a/b}", "agent.name: a name of letters, digits, '.', '_' and '-', at most 128, is needed"),
        ("[a]", "an agent: a mapping is needed, not list"),
        ("{", "did not find expected"),
    ],
)
def test_what_is_no_agent_is_told_with_its_place(tmp_path: Path, text: str, reason: str) -> None:
    found = agents(tmp_path, text)
    assert set(found.agents) == {"default"}
    assert told(found)[0].startswith(f"{tmp_path}/0.yaml:")
    assert reason in told(found)[0]


def test_a_default_of_the_folder_replaces_the_packaged_one(tmp_path: Path) -> None:
    found = agents(tmp_path, HEAD.replace("name: a", "name: default") + "spec: {system_prompt: Mine.}")
    assert found.agents["default"].system_prompt == "Mine."
    assert found.problems == ()


def test_a_name_given_twice_is_told_and_the_first_one_stays(tmp_path: Path) -> None:
    found = agents(tmp_path, HEAD + "spec: {system_prompt: one}", HEAD + "spec: {system_prompt: two}")
    assert found.agents["a"].system_prompt == "one"
    (problem,) = told(found)
    assert problem.startswith(f"{tmp_path}/1.yaml:1: agent a is already defined in {tmp_path}/0.yaml:1; ")


def test_a_missing_folder_is_told_and_the_default_remains(tmp_path: Path) -> None:
    found = load(tmp_path / "nowhere")
    assert set(found.agents) == {"default"}
    assert told(found) == [f"{tmp_path}/nowhere: no such folder"]


@pytest.mark.parametrize(
    "text",
    [
        HEAD.replace("name: a", "name: default") + "spec: {config: {approval: {timeout_seconds: ten}}}",
        "agent: {name: default, config: {max_turns: many}}",
        "apiVersion: loom/v1\nkind: Agent\nmetadata: {name: default}\nspec: {config: {",
        "agent:\n  'name' : 'default'\n  system_prompt: \"",
    ],
)
def test_no_other_agent_takes_the_place_of_one_whose_file_has_a_fault(tmp_path: Path, text: str) -> None:
    found = agents(tmp_path, text, HEAD)
    assert set(found.agents) == {"a"}
    assert found.refused == {"default": found.problems[0]}
    assert f"{tmp_path}/0.yaml:" in found.fault("default")
    assert found.fault("a") == found.fault("b") == ""


def test_a_name_that_one_file_gives_with_a_fault_is_not_taken_from_another(tmp_path: Path) -> None:
    found = agents(tmp_path, HEAD + "spec: {config: {max_turns: many}}", HEAD)
    assert set(found.agents) == {"default"}
    assert set(found.refused) == {"a"}


@pytest.mark.parametrize(
    "text", ["apiVersion: loom/v1\nkind: Workflow\nmetadata: {name: default}", "{name: defaults", "["]
)
def test_a_file_that_is_of_no_default_agent_leaves_the_packaged_one(tmp_path: Path, text: str) -> None:
    found = agents(tmp_path, text)
    assert set(found.agents) == {"default"}
    assert found.problems


def test_a_file_called_default_that_cannot_be_read_is_taken_for_the_default_agent(tmp_path: Path) -> None:
    (tmp_path / "default.yaml").write_bytes(b"\xff\xfe\x00")
    assert set(load(tmp_path).refused) == {"default"}


PLACES = """\
# The first line says nothing.
apiVersion: loom/v1
kind: Agent
metadata: {name: places}
spec:
  system_prompt: |
    Be brief.

    name: nobody
  llm: &llm
    provider: scripted
    modle: m
  compressor_llm:
    <<: *llm
  tools:
    - execute_sql

    - list_tables
  mcp_servers:
    files:
      command: x
      env: {TOKEN: {secret: FILES}}
  config:
    timeout_seconds: 5
    on: 1
"""


def test_every_key_and_list_entry_is_known_by_its_line(tmp_path: Path) -> None:
    lines = agents(tmp_path, PLACES).agents["places"].lines
    wanted = {"metadata.name": 4, "spec": 5, "spec.system_prompt": 6, "spec.llm": 10, "spec.llm.provider": 11}
    wanted |= {"spec.compressor_llm": 13, "spec.compressor_llm.provider": 11, "spec.tools": 15, "spec.tools[0]": 16}
    wanted |= {"spec.tools[1]": 18, "spec.mcp_servers.files.env.TOKEN": 22, "spec.config.on": 25}
    assert {path: lines.get(path) for path in wanted} == wanted


def test_a_problem_of_an_agent_is_placed_at_its_key_or_at_what_would_hold_it(tmp_path: Path) -> None:
    agent = agents(tmp_path, "\n\n---\n" + PLACES).agents["places"]
    assert (
        str(agent.problem("spec.tools[1]", "no", "yes"))
        == f"{tmp_path}/0.yaml:21: agent places: spec.tools[1]: no; yes"
    )
    lines = {path: agent.problem(path, "no").line for path in ("spec.tools[7].name", "spec.llm.max_tokens", "nothing")}
    assert lines == {"spec.tools[7].name": 18, "spec.llm.max_tokens": 13, "nothing": 5}


def test_a_key_that_is_nearly_a_known_one_is_told_with_its_line_and_the_key_that_is_meant(tmp_path: Path) -> None:
    found = agents(tmp_path, PLACES)
    assert told(found) == [
        f"{tmp_path}/0.yaml:12: agent places: spec.llm.modle: unknown key; did you mean model?",
        f"{tmp_path}/0.yaml:12: agent places: spec.compressor_llm.modle: without effect yet",
        f"{tmp_path}/0.yaml:25: agent places: spec.config.on: unknown key; it has no effect",
    ]


def test_a_key_that_stands_twice_is_told_with_the_line_of_the_one_that_counts(tmp_path: Path) -> None:
    found = agents(tmp_path, HEAD + "spec:\n  tools: [execute_sql]\n  system_prompt: x\n  tools: []\n")
    assert found.agents["a"].tools == ()
    assert told(found)[0].startswith(f"{tmp_path}/0.yaml:7: agent a: tools stands there twice, and this one counts")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (HEAD + "spec:\n  llm:\n    provider: anthropic\n    max_tokens: many\n", 7),
        (HEAD + "spec:\n  tools:\n    - x\n    - {}\n", 7),
        (HEAD + "spec:\n  backend:\n    type: rest\n    url: x\n", 5),
        (HEAD + "spec:\n  tools: [a,\n    b\n  system_prompt: c\n", 5),
        (HEAD + "spec:\n  system_prompt: 'never\n   closed\n", 5),
        (HEAD + "spec:\n   llm: {}\n  tools: []\n", 6),
        ("agent:\n  name: a\n  config:\n    approval: {on_timeout: x}\n", 4),
    ],
)
def test_a_broken_file_is_told_with_the_line_of_its_fault(tmp_path: Path, text: str, line: int) -> None:
    found = agents(tmp_path, text)
    assert told(found)[0].startswith(f"{tmp_path}/0.yaml:{line}: ")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("x.yaml", "apiVersion: loom/v1\nkind: Agent\nmetadata:\n  name: 'b'\nspec: {tools: ["),
        ("b.yaml", "apiVersion: loom/v1\nkind: Agent\nmetadata: {"),
        ("b.yaml", "apiVersion: loom/v1\nkind: Agent\nmetadata: {nmae: b}"),
        ("b.yml", "kind: Workflow\n"),
        ("x.yaml", HEAD.replace("name: a", "name: b") + "spec: {tools: {}, llm: 1}"),
    ],
)
def test_an_agent_whose_file_cannot_be_read_is_broken_and_not_unknown(tmp_path: Path, file: str, text: str) -> None:
    (tmp_path / file).write_text(text, encoding="utf-8")
    fault = load(tmp_path).fault("b")
    assert fault.startswith(f"The agent 'b' cannot work, its file is broken: {tmp_path}/{file}:")


def test_a_name_that_a_broken_file_only_mentions_takes_no_agent_away(tmp_path: Path) -> None:
    found = agents(tmp_path, HEAD, "# as in name: a\nagent: {")
    assert set(found.agents) == {"default", "a"}
    assert found.fault("a") == ""


def test_a_file_that_holds_no_agent_or_is_passed_over_for_its_name_is_a_warning(tmp_path: Path) -> None:
    for name in ("empty.yaml", "upper.YAML", "old.yaml.bak", "notes.txt", "tools.py"):
        (tmp_path / name).write_text("# nothing yet\n", encoding="utf-8")
    found = load(tmp_path)
    assert told(found) == [
        f"{tmp_path}/old.yaml.bak: is not read; files of agents end in .yaml or .yml",
        f"{tmp_path}/upper.YAML: is not read; files of agents end in .yaml or .yml",
        f"{tmp_path}/empty.yaml: no agent in it",
    ]
    assert all(problem.is_warning for problem in found.problems)
    assert "no agent in it" in found.fault("empty")


def test_the_openapi_document_of_an_agent_is_not_taken_for_an_agents_file(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text("openapi: 3.0.0\npaths: {}\n", encoding="utf-8")
    (tmp_path / "other.yaml").write_text("openapi: 3.0.0\npaths: {}\n", encoding="utf-8")
    found = agents(tmp_path, HEAD + "spec: {backend: {type: rest, openapi: shop.yaml}}")
    assert [Path(problem.file).name for problem in found.problems] == ["other.yaml"]
