from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.core.values.workflows import (
    ApprovalGate,
    Conditional,
    Debate,
    ParallelTasks,
    Pattern,
    Pipeline,
    PipelineStage,
    Swarm,
    Task,
)
from loom_worker.workflows.legacy import modern
from tests.unit.workflows import files
from tests.unit.workflows.files import document, pattern, told, workflow, workflows


def test_an_older_pipeline_lists_its_stages_as_agents(tmp_path: Path) -> None:
    gate = ApprovalGate("Look: {{output}}", 9.0, "reject")
    assert pattern(tmp_path, files.OLD_PIPELINE) == Pipeline(
        "{{input}}",
        (
            PipelineStage("w:first", "Begin: {{user_query}}", "first"),
            PipelineStage("w:second", "{{previous}}", "second", approval=gate),
        ),
    )


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            files.OLD_FORK_JOIN,
            ParallelTasks(
                "fork-join", (Task("w:one", "{{input}}"), Task("two", "{{input}}")), "summary", timeout_s=5.0
            ),
        ),
        (
            files.OLD_PARALLEL,
            ParallelTasks("parallel", (Task("w:one", "Do {{user_query}}"), Task("w:two", "{{input}}"))),
        ),
        (
            files.OLD_PARALLEL.replace("parallel", "fork_join"),
            ParallelTasks("parallel", (Task("w:one", "Do {{user_query}}"), Task("w:two", "{{input}}"))),
        ),
        (files.OLD_DEBATE, Debate("{{input}}", ("w:one", "w:two"), 2, moderator_agent_id="w:chair")),
        (
            files.OLD_DEBATE.replace("config: {rounds: 2}", ""),
            Debate("{{input}}", ("w:one", "w:two"), 3, moderator_agent_id="w:chair"),
        ),
        (files.OLD_SWARM, Swarm("{{input}}", ("w:one",), "unanimous", 0.7, True, "w:chair")),
        (
            files.OLD_CONDITIONAL,
            Conditional(
                "w:sorter",
                "Sort {{user_query}}",
                {"no": ParallelTasks("fork-join", (Task("w:other", "{{input}}"),), "summary")},
            ),
        ),
        (files.OLD_WITHOUT_BRANCHES, Pipeline("{{input}}", (PipelineStage("w:sorter", "{{previous}}", "sorter"),))),
    ],
)
def test_each_older_form_is_the_same_as_one_of_today(tmp_path: Path, spec: str, expected: Pattern) -> None:
    assert pattern(tmp_path, spec) == expected


def test_settings_beside_the_spec_are_taken_over(tmp_path: Path) -> None:
    found = workflow(tmp_path, files.OLD_PIPELINE, "orchestration: {pass_full_history: true, timeout_seconds: 8}")
    assert isinstance(found.pattern, Pipeline)
    assert found.pattern.pass_full_history
    assert found.deadline_s == 8.0


def test_what_is_set_beside_the_type_comes_before_config(tmp_path: Path) -> None:
    spec = "{type: debate, topic: x, agent_ids: [a], rounds: 4, config: {rounds: 2, colour: red}}"
    found = workflows(tmp_path, document(spec))
    debate = found.workflows["w"].pattern
    assert isinstance(debate, Debate)
    assert debate.rounds == 4
    assert told(found) == [
        "0.yaml:5: spec.config.rounds: without effect yet",
        "0.yaml:5: spec.config.colour: without effect yet",
    ]


def test_the_agents_of_a_spec_of_today_may_be_all_that_names_them(tmp_path: Path) -> None:
    spec = "{type: debate, topic: x, agents: [{name: a}, {name: b, role: moderator}]}"
    assert pattern(tmp_path, spec) == Debate("x", ("a",), moderator_agent_id="b")


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


def test_the_schema_of_an_output_policy_is_that_of_the_stage(tmp_path: Path) -> None:
    stage = "{agent_id: a, prompt_template: x, output_policy: {output_schema: {type: object}, more: 1}}"
    found = workflows(tmp_path, document(f"{{type: pipeline, initial_prompt: x, stages: [{stage}]}}"))
    pipeline = found.workflows["w"].pattern
    assert isinstance(pipeline, Pipeline)
    assert pipeline.stages[0].output_schema == {"type": "object"}
    assert told(found) == ["0.yaml:5: spec.stages[0].output_policy: without effect yet"]


@pytest.mark.parametrize(
    ("old", "new", "line", "problem"),
    [
        ("system_prompt: You end.", "system_prompt: [x]", 12, "agents[1].system_prompt: a text is needed"),
        ("timeout_seconds: 9", "timeout_seconds: no", 13, "agents[1].hitl_gate.timeout_seconds: a number above 0"),
        ("id: second", "label: second", 11, "agents[1].id: is missing"),
        ("id: second", "id: first", 11, "agents[1].id: another agent has the name 'first'"),
        ("id: second", "id: the second", 11, "agents[1].id: a name of letters, digits, '.', '_' and '-', at most 63,"),
        ("{{user_query}}", "{{user query}}", 10, "agents[0].prompt_template: a placeholder is a name, as in {{name}}"),
        ("pattern: pipeline", "pattern: pipelines", 5, "pattern: one of pipeline, fork-join"),
        ("agents:", "agents: 5\nmembers:", 6, "agents: a list of mappings is needed, not '5'"),
        ("agents:", "agents: []\nmembers:", 6, "agents: from 1 to 100 entries are needed, not 0"),
    ],
)
def test_an_error_names_the_key_and_the_line_of_the_file(
    tmp_path: Path, old: str, new: str, line: int, problem: str
) -> None:
    assert old in files.OLD_PIPELINE
    (found,) = told(workflows(tmp_path, document(files.OLD_PIPELINE.replace(old, new))))
    assert found.startswith(f"0.yaml:{line}: spec.{problem}")


def test_what_a_gate_has_and_nothing_uses_is_reported(tmp_path: Path) -> None:
    gate = "{request_type: approval, revise_target_stage_id: %s}"
    stage = "{agent_id: a, prompt_template: x, hitl_gate: %s}"
    spec = "{type: pipeline, initial_prompt: x, stages: [%s]}"
    found = workflows(tmp_path, document(spec % stage % gate % "a"))
    assert told(found) == ["0.yaml:5: spec.stages[0].hitl_gate.request_type: without effect yet"]
    other = workflows(tmp_path, document(spec % stage % gate % "b"))
    assert "0.yaml:5: spec.stages[0].hitl_gate.revise_target_stage_id: without effect yet" in told(other)


@pytest.mark.parametrize("name", files.EVERY)
def test_todays_form_stays_as_it_is_and_nothing_given_is_changed(name: str) -> None:
    content = yaml.safe_load(document(files.EVERY[name]))
    before = deepcopy(content)
    form = modern(content, "w")
    assert content == before
    again = modern(form.root, "w")
    assert again.root == form.root


LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=8))
KEYS = st.sampled_from(
    "pattern type agents id name role prompt_template hitl_gate config rounds orchestration branches default_branch "
    "stages tasks agent_ids approval output_policy pipeline system_prompt agent spec".split()
)
VALUES = st.recursive(
    LEAVES | st.sampled_from(("pipeline", "fork_join", "debate", "conditional", "moderator", "swarm")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=25,
)


@given(st.dictionaries(KEYS, VALUES), VALUES)
def test_whatever_is_written_can_be_turned(spec: dict[str, Any], orchestration: Any) -> None:
    form = modern({"spec": spec, "orchestration": orchestration}, "w", None)
    assert isinstance(form.root["spec"], dict)
