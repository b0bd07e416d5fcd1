import contextlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.core.fields import InvalidField
from loom_worker.core.values.workflows import (
    ApprovalGate,
    Conditional,
    Coordination,
    Debate,
    Iterative,
    OutputRetries,
    ParallelTasks,
    Pipeline,
    PipelineStage,
    Swarm,
    Task,
)
from loom_worker.workflows.spec import pattern_from
from tests.unit.workflows import files
from tests.unit.workflows.files import pattern, told, workflows

STAGE = "{agent_id: a, prompt_template: x%s}"
PIPELINE = "{type: pipeline, initial_prompt: x, stages: [%s]}"
ITERATIVE = "{type: iterative, pipeline: {initial_prompt: x, stages: [{agent_id: a, prompt_template: x}]}%s}"
DEEP = "{type: conditional, condition_agent_id: a, condition_prompt: x, branches: {b: %s}}"


def test_a_pipeline_arrives_with_every_field(tmp_path: Path) -> None:
    schema = {"type": "object", "required": ["title"], "properties": {"title": {"enum": ["a", "b"]}}}
    assert pattern(tmp_path, files.PIPELINE) == Pipeline(
        "{{input}}",
        (
            PipelineStage("scout", "Look for {{topic}}: {{previous}}", "scout"),
            PipelineStage(
                "writer",
                "Write. {{history}} {{revision_feedback}}",
                "text",
                "Is it short? {{output}}",
                schema,
                OutputRetries(2, include_valid_values=False, feedback="{{error}} in {{output}}"),
                ApprovalGate("Read {{output}}", 60.0, "approve", 1),
            ),
        ),
        pass_full_history=True,
    )


@pytest.mark.cases(
    ("member", "form"),
    [
        ("response_format: {type: json_schema, name: p, schema: {type: object}}", {"type": "object"}),
        ("output_schema: {type: object}", None),
    ],
)
def test_a_stage_asks_the_model_for_the_form_of_its_response_format_alone(
    tmp_path: Path, member: str, form: Any
) -> None:
    found: Any = pattern(tmp_path, PIPELINE % STAGE % f", {member}")
    [stage] = found.stages
    assert (stage.response_format and stage.response_format["schema"]) == form
    assert stage.output_schema is not None


def test_agents_side_by_side_arrive(tmp_path: Path) -> None:
    tasks = (Task("one", "{{input}}"), Task("two", "{{input}}"))
    assert pattern(tmp_path, files.FORK_JOIN) == ParallelTasks("fork-join", tasks, "summary", "three", 30.0)
    assert pattern(tmp_path, files.PARALLEL) == ParallelTasks(
        "parallel", (Task("one", "First, {{input}}"), Task("two", "Second"))
    )


def test_a_conditional_arrives_with_its_branches_by_the_names_in_the_file(tmp_path: Path) -> None:
    assert pattern(tmp_path, files.CONDITIONAL) == Conditional(
        "sorter",
        "Is this {{input}}?",
        {
            "yes": ParallelTasks("fork-join", (Task("one", "{{previous}}"),)),
            "other": ParallelTasks("parallel", (Task("two", "{{initial}}"),)),
        },
        Debate("{{initial}}", ("one", "two")),
        OutputRetries(1),
    )


def test_an_iterative_pipeline_arrives(tmp_path: Path) -> None:
    stages = (PipelineStage("maker", "{{previous}}", "maker"), PipelineStage("checker", "{{previous}}", "checker"))
    assert pattern(tmp_path, files.ITERATIVE) == Iterative(
        Pipeline("Begin", stages), 5, frozenset({"checker"}), frozenset({"maker"})
    )


def test_an_iterative_pipeline_whose_policy_is_off_runs_once(tmp_path: Path) -> None:
    found = pattern(tmp_path, files.ITERATIVE.replace("enabled: true", "enabled: false"))
    assert isinstance(found, Iterative)
    assert found.max_iterations == 1


def test_a_debate_and_a_swarm_arrive(tmp_path: Path) -> None:
    assert pattern(tmp_path, files.DEBATE) == Debate("{{input}}", ("one", "two"), 2, "consensus", "three")
    retry = OutputRetries(1, feedback="{{error}}")
    voters = ("one", "two", "three")
    assert pattern(tmp_path, files.SWARM) == Swarm("{{.input}}", voters, "weighted", 0.0, True, "four", retry)


def test_a_coordination_names_agents_of_the_installation_and_its_own(tmp_path: Path) -> None:
    assert pattern(tmp_path, files.COORDINATION) == Coordination("team-lead", "{{input}}", ("team-lead", "w:helper"))
    assert pattern(tmp_path, "{entrypoint: lead, prompt: Go}") == Coordination("lead", "Go")


@pytest.mark.parametrize(
    ("approval", "gate"),
    [
        ("true", ApprovalGate()),
        ("false", None),
        ("{}", ApprovalGate()),
        ("{prompt: See}", ApprovalGate("See")),
        ("{max_revisions: 0}", ApprovalGate(max_revisions=0)),
    ],
)
def test_an_approval_may_be_a_word_or_a_mapping(tmp_path: Path, approval: str, gate: ApprovalGate | None) -> None:
    stage = f"{{agent_id: a, prompt_template: x, approval: {approval}}}"
    found = pattern(tmp_path, f"{{type: pipeline, initial_prompt: x, stages: [{stage}]}}")
    assert isinstance(found, Pipeline)
    assert found.stages[0].approval == gate


def test_a_schema_may_be_a_text_of_json(tmp_path: Path) -> None:
    stage = '{agent_id: a, prompt_template: x, output_schema: \'{"type": "object"}\'}'
    found = pattern(tmp_path, f"{{type: pipeline, initial_prompt: x, stages: [{stage}]}}")
    assert isinstance(found, Pipeline)
    assert found.stages[0].output_schema == {"type": "object"}


def test_stages_of_one_agent_are_numbered_around_the_given_ids(tmp_path: Path) -> None:
    stages = (STAGE % more for more in ("", "", ", id: a-2", ", id: own", ""))
    found = pattern(tmp_path, PIPELINE % ", ".join(stages))
    assert isinstance(found, Pipeline)
    assert [stage.id for stage in found.stages] == ["a", "a-3", "a-2", "own", "a-4"]


def staged(more: str) -> str:
    return PIPELINE % (STAGE % more)


def nested(depth: int) -> str:
    found = "{type: debate, topic: x, agent_ids: [a]}"
    for _ in range(depth - 1):
        found = DEEP % found
    return found


@pytest.mark.cases(
    ("spec", "reason"),
    [
        ("{}", "spec.type: is missing"),
        ("[]", "spec: a mapping is needed, not list"),
        ("{type: piepline}", "spec.type: one of pipeline, fork-join, parallel, conditional, iterative, debate, swarm, "
            "coordination is needed, not 'piepline'; did you mean pipeline?"),
        ("{type: [x]}", "spec.type: a text is needed, not \"['x']\""),
        ("{type: pipeline, stages: []}", "spec.initial_prompt: is missing"),
        ("{type: pipeline, initial_prompt: x}", "spec.stages: is missing"),
        ("{type: pipeline, initial_prompt: x, stages: []}", "spec.stages: from 1 to 100 entries are needed, not 0"),
        ("{type: pipeline, initial_prompt: x, stages: {a: 1}}",
            "spec.stages: a list of mappings is needed, not \"{'a': 1}\""),
        (PIPELINE % "{prompt_template: x}", "spec.stages[0].agent_id: is missing"),
        (PIPELINE % "{agent_id: a}", "spec.stages[0].prompt_template: is missing"),
        (staged(", id: b}, {agent_id: a, id: b, prompt_template: x"),
            "spec.stages[1].id: another stage has the id 'b'"),
        (staged(", retry_policy: {max_retries: 11}"),
            "spec.stages[0].retry_policy.max_retries: a whole number from 0 to 10 is needed, not '11'"),
        (staged(", retry_policy: {max_retries: -1}"),
            "spec.stages[0].retry_policy.max_retries: a whole number from 0 to 10 is needed, not '-1'"),
        (staged(", output_schema: '{'"), "spec.stages[0].output_schema: is not JSON: Expecting property name enclosed "
            "in double quotes: line 1 column 2 (char 1)"),
        (staged(", output_schema: '[]'"),
            "spec.stages[0].output_schema: a JSON Schema, which is a mapping, is needed, not '[]'"),
        (staged(", output_schema: {type: objekt}"), "spec.stages[0].output_schema: is no JSON Schema: /type: 'objekt' "
            "is not valid under any of the given schemas"),
        (staged(", output_schema: {$ref: 'https://example.org/x'}"), "spec.stages[0].output_schema: the JSON Schema "
            "refers to 'https://example.org/x', which is not in it"),
        (staged(", approval: maybe"), "spec.stages[0].approval: a mapping is needed, not str"),
        (staged(", approval: {on_timeout: wait}"),
            "spec.stages[0].approval.on_timeout: one of reject, approve is needed, not 'wait'"),
        ("{type: fork-join, prompt: x, agent_ids: []}", "spec.agent_ids: from 1 to 100 entries are needed, not 0"),
        ("{type: fork-join, prompt: x, agent_ids: [a, ' ']}", "spec.agent_ids[1]: is missing"),
        ("{type: fork-join, prompt: x, agent_ids: [a], merge_strategy: loudest}", "spec.merge_strategy: one of "
            "consensus, voting, summary, concatenate, first, best is needed, not 'loudest'"),
        ("{type: fork-join, prompt: x, agent_ids: [a], timeout_seconds: 0}",
            "spec.timeout_seconds: a number above 0 is needed, not '0'"),
        ("{type: parallel, tasks: [{agent_id: a}]}", "spec.tasks[0].prompt: is missing"),
        ("{type: conditional, condition_agent_id: a, condition_prompt: x}", "spec.branches: is missing"),
        ("{type: conditional, condition_agent_id: a, condition_prompt: x, branches: {}}",
            "spec.branches: from 1 to 100 entries are needed, not 0"),
        (DEEP % "{type: debate, agent_ids: [a]}", "spec.branches.b.topic: is missing"),
        (DEEP % "text", "spec.branches.b: a mapping is needed, not str"),
        (nested(6), "spec.branches.b.branches.b.branches.b.branches.b.branches.b: at most 5 workflows may stand within "
            "each other"),
        ("{type: iterative}", "spec.pipeline: is missing"),
        (ITERATIVE % ", max_iterations: 101", "spec.max_iterations: a whole number from 1 to 100 is needed, not '101'"),
        (ITERATIVE % ", restart_triggers: [a, ab]",
            "spec.restart_triggers[1]: there is no stage 'ab'; did you mean a?"),
        (ITERATIVE % ", restart_policy: {restartable_stages: [zzz]}",
            "spec.restart_policy.restartable_stages[0]: there is no stage 'zzz'"),
        ("{type: debate, topic: x, agent_ids: [a], rounds: 21}",
            "spec.rounds: a whole number from 1 to 20 is needed, not '21'"),
        ("{type: swarm, question: x, agent_ids: [a], strategy: ranked_choice}", "spec.strategy: one of majority, "
            "supermajority, unanimous, weighted is needed, not 'ranked_choice'"),
        ("{type: swarm, question: x, agent_ids: [a], confidence_threshold: 2}",
            "spec.confidence_threshold: a number from 0 to 1 is needed, not '2'"),
        ("{entrypoint: laed, agents: [{name: lead, agent: a}]}",
            "spec.entrypoint: spec.agents has no 'laed'; did you mean lead?"),
        ("{entrypoint: a, agents: [{name: a}, {name: a}]}", "spec.agents[1]: another agent has the name 'a'"),
        ("{entrypoint: a, agents: [{agent: a}]}", "spec.agents[0].name: is missing"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_named_with_its_path(tmp_path: Path, spec: str, reason: str) -> None:
    found = workflows(tmp_path, files.document(spec))
    assert [f"{problem.field}: {problem.text}" for problem in found.problems] == [reason]
    assert {problem.line for problem in found.problems} <= {4, 5}
    assert found.workflows == {}


def test_as_many_patterns_may_stand_within_each_other_as_are_allowed(tmp_path: Path) -> None:
    assert isinstance(pattern(tmp_path, nested(5)), Conditional)


@pytest.mark.parametrize("key", ["stages", "tasks", "agent_ids"])
def test_more_entries_than_are_allowed_are_an_error(tmp_path: Path, key: str) -> None:
    entry = {"agent_ids": "a"}.get(key, "{agent_id: a, prompt: x, prompt_template: x}")
    kind = {"stages": "pipeline", "tasks": "parallel", "agent_ids": "fork-join"}[key]
    listed = ", ".join([entry] * 101)
    found = workflows(tmp_path, files.document(f"{{type: {kind}, initial_prompt: x, prompt: x, {key}: [{listed}]}}"))
    assert f"spec.{key}: from 1 to 100 entries are needed, not 101" in told(found)[0]


@pytest.mark.cases("name", files.EVERY)
def test_a_stored_spec_is_read_as_the_same_pattern(tmp_path: Path, name: str) -> None:
    found = files.workflow(tmp_path, files.EVERY[name])
    assert pattern_from(found.spec) == found.pattern


LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8))
KEYS = st.sampled_from(
    "type stages agent_id prompt prompt_template initial_prompt agent_ids tasks branches condition_agent_id "
    "condition_prompt pipeline entrypoint agents name retry_policy approval output_schema restart_triggers".split()
)
SPECS = st.dictionaries(
    KEYS,
    st.recursive(
        LEAVES | st.sampled_from(("pipeline", "parallel", "conditional", "iterative")),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=5),
        max_leaves=20,
    ),
)


@given(SPECS)
def test_whatever_is_written_is_a_pattern_or_an_invalid_field(spec: dict[str, Any]) -> None:
    with contextlib.suppress(InvalidField):
        assert pattern_from(spec) == pattern_from(spec)
