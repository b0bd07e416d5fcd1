import re
from pathlib import Path

import pytest

from loom_worker.workflows.load import Workflows, load
from tests.unit.workflows import files
from tests.unit.workflows.files import document, told, workflow, workflows

DEBATE = "{type: debate, topic: x, agent_ids: [a]%s}"
PAGE = Path(__file__).parents[3] / "docs" / "workflows.md"


def test_without_a_folder_there_are_none() -> None:
    assert load(None) == Workflows()


def test_a_folder_that_is_not_there_is_a_problem(tmp_path: Path) -> None:
    assert [str(problem) for problem in load(tmp_path / "none").problems] == [f"{tmp_path}/none: no such folder"]


@pytest.mark.cases("name", files.EVERY)
def test_every_form_loads_without_an_error(tmp_path: Path, name: str) -> None:
    found = workflows(tmp_path, document(files.EVERY[name]))
    assert set(found.workflows) == {"w"}
    assert found.problems == ()


def test_what_stands_beside_the_pattern_arrives(tmp_path: Path) -> None:
    text = """\
apiVersion: loom/v1
kind: Workflow
metadata: {name: report, version: 1.10, description: Reports., labels: {team: x, level: 3}}
spec:
  type: debate
  topic: "{{tone}} {{size}}"
  agent_ids: [a]
  variables: {tone: calm, size: 1.50, strict: yes, region: null}
  budget: {usd: 2.5, tokens: 100, tool_calls: 0}
  deadline_seconds: 90
schedule: {cron: "0 8 * * *", variables: {tone: loud, day: 2026-01-02, date: never}}
"""
    found = workflows(tmp_path, text)
    made = found.workflows["report"]
    assert (made.description, dict(made.labels)) == ("Reports.", {"team": "x", "level": "3"})
    assert made.variables == {"tone": "calm", "size": "1.50", "strict": "true", "day": "2026-01-02"}
    assert made.needed == {"region": 8}
    assert made.budget == {"usd": 2.5, "tokens": 100, "tool_calls": 0}
    assert made.deadline_s == 90.0
    assert made.source == f"{tmp_path}/0.yaml:1"
    assert told(found) == [
        "0.yaml:8: spec.variables.strict: no text uses this variable",
        "0.yaml:8: spec.variables.region: no text uses this variable",
    ]
    assert made.as_json()["pattern_type"] == "debate"


def test_a_run_must_give_what_a_text_uses_and_nothing_else_gives(tmp_path: Path) -> None:
    spec = """
type: conditional
condition_agent_id: a
condition_prompt: "{{topic}} {{date}} {{run_id}} {{workflow}} {{initial}} {{previous}}"
branches:
  one:
    type: pipeline
    initial_prompt: "{{previous}} {{initial}}"
    stages:
      - agent_id: a
        prompt_template: "{{previous}} {{history}} {{feedback}} {{output}}"
        validation_prompt: "{{output}} {{error}}"
        retry_policy: {feedback_template: "{{error}} {{attempt}} {{max_retries}} {{valid_values}} {{previous_output}}"}
        approval: {prompt: "{{output}} {{topic}} {{colour}}"}
"""
    found = workflow(tmp_path, spec)
    assert dict(found.needed) == {"topic": 7, "input": 7, "previous": 7, "output": 14, "error": 15, "colour": 17}


@pytest.mark.parametrize(
    ("prompt", "validation", "advice"),
    [
        ("{{prevoius}}", "", "did you mean previous?"),
        ("x", "{{outptu}}", "did you mean output?"),
        ("{{output}}", "", "Loom fills it in other texts, not in this one"),
        ("{{regoin}}", "", "did you mean region?"),
        ("{{previous_month}} {{input}} {{region}} {{topics}}", "{{output}}", ""),
    ],
)
def test_a_placeholder_that_looks_misspelt_is_told_with_its_line(
    tmp_path: Path, prompt: str, validation: str, advice: str
) -> None:
    stage = f'{{agent_id: a, prompt_template: "{prompt}", validation_prompt: "{validation}"}}'
    text = f"type: pipeline\ninitial_prompt: '{{{{region}}}}'\nvariables: {{region: north}}\nstages:\n- {stage}\n"
    assert [(each.line, each.fix) for each in workflows(tmp_path, document(text)).problems] == [(9, advice)] * bool(
        advice
    )


def test_agents_of_a_file_are_read_as_those_of_other_files(tmp_path: Path) -> None:
    spec = """
type: fork-join
prompt: x
agent_ids: [own]
agents:
  - id: own
    description: Mine.
    llm: {model: m}
    tools: [list_tables]
    backend: false
    config: {max_turns: 3, colour: red}
    role: clerk
"""
    found = workflows(tmp_path, document(spec))
    agent = found.workflows["w"].agents["w:own"]
    assert (agent.name, agent.description, agent.llm.model) == ("w:own", "Mine.", "m")
    assert (agent.tools, agent.backend, agent.max_llm_calls) == (("list_tables",), None, 3)
    assert str(agent.problem(agent.at("tools[0]"), "no such tool")).rpartition("/")[2] == (
        "0.yaml:12: agent w:own: agent.tools[0]: no such tool"
    )
    assert told(found) == [
        "0.yaml:14: spec.agents[0].config.colour: unknown key; it has no effect",
        "0.yaml:15: spec.agents[0].role: without effect yet",
    ]
    assert found.workflows["w"].unknown_keys == ("spec.agents[0].config.colour",)


@pytest.mark.cases(
    ("text", "problem"),
    [
        ("[]", "1: a workflow: a mapping is needed, not list"),
        ("kind: Workflw", "1: kind: Workflow is needed, not Workflw"),
        ("kind: Workflow", "1: apiVersion: loom/v1 is needed, not nothing"),
        ("kind: Workflow\napiVersion: loom/v1",
            "1: metadata.name: a name of letters, digits, '.', '_' and '-', at most 64, is needed, not ''"),
        (document("{}", "x" * 65), "3: metadata.name: a name of letters, digits, '.', '_' and '-', at most 64, "),
        (document(DEBATE % "", "a:b"), "3: metadata.name: a name of letters"),
        (document(DEBATE % "", tail="schedule: daily"), "6: schedule: a mapping is needed, not str"),
        (document(DEBATE % ", budget: {day: {usd: 1}}"), "5: spec.budget.day: nothing (a run has one budget"),
        (document(DEBATE % ", budget: {usd: -1}"), "5: spec.budget.usd: a number from 0 to"),
        (document(DEBATE % ", deadline_seconds: 0"), "5: spec.deadline_seconds: a number above 0 is needed, not '0'"),
        (document(DEBATE % ", variables: {x: [1]}"), "5: spec.variables.x: a text, a number, true or false is needed"),
        (document(DEBATE % ", variables: {'a b': 1}"), "5: spec.variables.a b: a name of letters, digits, '_' and '-'"),
        (document(DEBATE % ", variables: {date: 1}"), "5: spec.variables.date: Loom gives this a value itself"),
        (document(DEBATE % ", variables: {query: 1, input: 2}"), "5: spec.variables.input: 'input' is another name"),
        (document(DEBATE % ", x: .nan"), "4: spec: a value that JSON does not have"),
        (document(DEBATE % ", x: !!set {a: null}"), "4: spec: a value that JSON does not have"),
        (document(DEBATE.replace("topic: x", "topic: '{{a b}}'") % ""), "5: spec.topic: a placeholder is a name"),
        (document(DEBATE.replace("topic: x", "topic: '{{a'") % ""), "5: spec.topic: a placeholder is opened"),
        ("a: [", "1: "),
    ],
)  # fmt: skip
def test_an_error_names_its_line_and_affects_its_document_only(tmp_path: Path, text: str, problem: str) -> None:
    good = document(DEBATE % "", "good")
    found = workflows(tmp_path, text, good)
    assert set(found.workflows) == {"good"}
    (told_of,) = told(found)
    assert told_of.startswith(f"0.yaml:{problem}")
    beside = workflows(tmp_path, f"{text}\n---\n{good}") if text != "a: [" else found
    assert "good" in beside.workflows


def test_a_missing_workflow_is_explained_by_the_error_in_its_file(tmp_path: Path) -> None:
    bad = document("{type: debate}")
    found = workflows(tmp_path, bad, "{\nname: unread", document(DEBATE % "", "good"))
    assert set(found.refused) == {"w"}
    assert found.unread == {tmp_path / "1.yaml"}
    assert found.fault("w") == (
        f"The workflow 'w' cannot run, its file is broken: {tmp_path}/0.yaml:4: spec.topic: is missing"
    )
    assert "1.yaml" in found.fault("unread")
    assert found.fault("good") == found.fault("unheard") == ""


def test_a_name_that_stands_twice_is_told_with_both_places(tmp_path: Path) -> None:
    found = workflows(tmp_path, document(DEBATE % ""), "\n" + document(DEBATE % ", rounds: 2"))
    assert [str(problem) for problem in found.problems] == [
        f"{tmp_path}/1.yaml:2: workflow w is already defined in {tmp_path}/0.yaml:1; rename one of them, or take it out"
    ]
    assert found.workflows["w"].file == f"{tmp_path}/0.yaml"


def test_a_name_that_a_broken_document_has_too_is_nobodys(tmp_path: Path) -> None:
    found = workflows(tmp_path, document(DEBATE % ""), document("{type: debate}"))
    assert found.workflows == {}
    assert "spec.topic" in found.fault("w")


def test_what_has_no_effect_is_told_with_its_line(tmp_path: Path) -> None:
    spec = """
type: iterative
max_iteration: 4
restart_topic: again
restart_policy: {cooldown_seconds: 1}
communication: {pattern: hub}
pipeline:
  initial_prompt: x
  stages:
    - {agent_id: a, prompt_template: x, leveling: {enabled: true}, retry_policy: {session_mode: fresh, cooldown_ms: 1}}
    - agent_id: a
      prompt_template: x
      prompt_template: y
"""
    found = workflows(tmp_path, document(spec, tail="extra: 1"))
    assert told(found) == [
        "0.yaml:6: spec.max_iteration: unknown key; did you mean max_iterations?",
        "0.yaml:7: spec.restart_topic: without effect yet",
        "0.yaml:8: spec.restart_policy.cooldown_seconds: without effect yet",
        "0.yaml:9: spec.communication: without effect yet",
        "0.yaml:13: spec.pipeline.stages[0].leveling: without effect yet",
        "0.yaml:13: spec.pipeline.stages[0].retry_policy.session_mode: without effect yet",
        "0.yaml:13: spec.pipeline.stages[0].retry_policy.cooldown_ms: without effect yet",
        "0.yaml:16: prompt_template stands there twice, and this one counts; take one of them out",
        "0.yaml:17: extra: unknown key; it has no effect",
    ]
    assert all(problem.is_warning for problem in found.problems)


def test_files_that_are_not_read_are_told(tmp_path: Path) -> None:
    (tmp_path / "a.YAML").write_text("x", encoding="utf-8")
    (tmp_path / "b.yaml").write_text("# nothing\n", encoding="utf-8")
    (tmp_path / "c.txt").write_text("x", encoding="utf-8")
    found = load(tmp_path)
    assert [str(problem).rpartition("/")[2] for problem in found.problems] == [
        "a.YAML: is not read; files of workflows end in .yaml or .yml",
        "b.yaml: no workflow in it",
    ]
    assert all(problem.is_warning for problem in found.problems)


def test_the_examples_of_the_page_load_with_every_field_understood(tmp_path: Path) -> None:
    blocks = re.findall(r"<!-- workflow -->\n```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) > 1
    found = workflows(tmp_path, *blocks)
    assert found.problems == ()
    assert len(found.workflows) >= len(blocks)
