"""A form of workflow files that earlier versions read is refused, and its agents' names and branches stay as today."""

from pathlib import Path

import pytest

from loom_worker.core.values.workflows import ParallelTasks, Pipeline, PipelineStage, Task
from loom_worker.workflows.spec import pattern_from
from tests.unit.workflows.files import document, pattern, told, workflow, workflows

PIPELINE = """
pattern: pipeline
agents:
  - {id: first, system_prompt: You begin., prompt_template: "Begin: {{user_query}}"}
"""
STAGE = """
type: pipeline
initial_prompt: x
stages:
  - agent_id: a
    prompt_template: x
    %s
"""
DEBATE = "type: debate\ntopic: x\nagent_ids: [a]\n"


@pytest.mark.cases(
    ("spec", "tail", "place", "instead"),
    [
        (PIPELINE, "", "5: spec.pattern", "type"),
        (DEBATE + "config: {rounds: 2}", "", "8: spec.config", "beside type"),
        (DEBATE, "orchestration: {rounds: 2}", "8: orchestration", "beside spec.type"),
        (STAGE % "hitl_gate: {on_timeout: fail}", "", "10: spec.stages[0].hitl_gate", "approval"),
        (STAGE % "output_policy: {output_schema: {}}", "", "10: spec.stages[0].output_policy", "output_schema"),
        ("type: iterative\npipeline: {stages: [{hitl_gate: true}]}", "", "6: spec.pipeline.stages[0].hitl_gate", ""),
        ("type: conditional\nbranches:\n  no: {pattern: swarm}", "", "7: spec.branches.no.pattern", "type"),
        ("type: conditional\ndefault_branch:\n  {config: {}}", "", "7: spec.default_branch.config", "beside type"),
    ],
)
def test_a_file_of_the_older_form_is_refused_with_its_line_and_what_to_write(
    tmp_path: Path, spec: str, tail: str, place: str, instead: str
) -> None:
    found = workflows(tmp_path, document(spec, tail=tail))
    (problem,) = told(found)
    assert problem.startswith(f"0.yaml:{place}: belongs to an older form of the file")
    assert instead in problem
    assert "docs/workflows.md" in problem
    assert set(found.refused) == {"w"}


@pytest.mark.cases(
    "spec", ["pattern: [", "stages: 5", "stages: [x, null]", "branches: {a: 1}", "pipeline: [x]", "type: 1"]
)
def test_a_spec_of_any_shape_is_refused_and_stops_nothing(tmp_path: Path, spec: str) -> None:
    assert [problem.is_warning for problem in workflows(tmp_path, document(spec)).problems] == [False]


def test_an_entry_may_give_an_agent_of_the_installation_another_name(tmp_path: Path) -> None:
    spec = "{type: fork-join, prompt: x, agent_ids: [b, c], agents: [{name: b, agent: big-one}]}"
    assert pattern(tmp_path, spec) == ParallelTasks("fork-join", (Task("big-one", "x"), Task("c", "x")))


def test_agents_of_the_file_are_known_in_branches(tmp_path: Path) -> None:
    branch = "{type: pipeline, initial_prompt: x, stages: [{agent_id: b, prompt_template: x}]}"
    spec = (
        "{type: conditional, condition_agent_id: b, condition_prompt: x, agents: [{id: b, llm: {model: m}}], "
        f"branches: {{one: {branch}}}, default_branch: {{type: iterative, pipeline: {branch}}}}}"
    )
    found = workflow(tmp_path, spec)
    assert set(found.agents) == {"w:b"}
    assert str(found.pattern).count("'w:b'") == 3


def test_an_agent_that_an_entry_replaces_is_told(tmp_path: Path) -> None:
    spec = "{type: fork-join, prompt: x, agent_ids: [b], agents: [{name: b, agent: big, llm: {model: m}}]}"
    (problem,) = told(workflows(tmp_path, document(spec)))
    assert problem.startswith("0.yaml:5: spec.agents[0].agent: without effect: the entry has settings of its own")


@pytest.mark.cases("name", ["yes", "on", "True", "no"])
def test_a_branch_is_called_as_it_is_written(tmp_path: Path, name: str) -> None:
    branch = "{type: fork-join, prompt: x, agent_ids: [a], colour: red}"
    spec = f"type: conditional\ncondition_agent_id: a\ncondition_prompt: x\nbranches:\n  {name}: {branch}"
    found = workflows(tmp_path, document(spec))
    assert name in found.workflows["w"].spec["branches"]
    assert told(found) == [f"0.yaml:9: spec.branches.{name}.colour: unknown key; it has no effect"]


def test_a_run_that_was_accepted_with_keys_of_the_older_form_goes_on() -> None:
    stage = {"agent_id": "a", "prompt_template": "x", "output_policy": {"more": 1}}
    spec = {"type": "pipeline", "initial_prompt": "x", "stages": [stage], "config": {"colour": "red"}}
    assert pattern_from(spec) == Pipeline("x", (PipelineStage("a", "x", "a"),))
