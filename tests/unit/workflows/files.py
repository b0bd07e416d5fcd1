"""Workflow files for tests, one of each type."""

from pathlib import Path
from textwrap import dedent, indent

from loom_worker.core.values.workflows import Pattern, Workflow
from loom_worker.workflows.load import Workflows, load

PIPELINE = """
type: pipeline
initial_prompt: "{{input}}"
stages:
  - agent_id: scout
    prompt_template: "Look for {{topic}}: {{previous}}"
  - agent_id: writer
    id: text
    prompt_template: "Write. {{history}} {{revision_feedback}}"
    validation_prompt: "Is it short? {{output}}"
    output_schema: {type: object, required: [title], properties: {title: {enum: [a, b]}}}
    retry_policy: {max_retries: 2, include_valid_values: false, feedback_template: "{{error}} in {{previous_output}}"}
    approval: {prompt: "Read {{output}}", timeout_seconds: 60, on_timeout: approve, max_revisions: 1}
pass_full_history: true
"""
FORK_JOIN = """
type: fork_join
prompt: "{{input}}"
agent_ids: [one, two]
merge_strategy: summary
merge_agent_id: three
timeout_seconds: 30
"""
PARALLEL = """
type: parallel
tasks:
  - {agent_id: one, prompt: "First, {{input}}"}
  - {agent_id: two, prompt: "Second"}
"""
CONDITIONAL = """
type: conditional
condition_agent_id: sorter
condition_prompt: "Is this {{input}}?"
retry_policy: {max_retries: 1}
branches:
  yes: {type: fork-join, prompt: "{{previous}}", agent_ids: [one]}
  other: {type: parallel, tasks: [{agent_id: two, prompt: "{{initial}}"}]}
default_branch: {type: debate, topic: "{{initial}}", agent_ids: [one, two]}
"""
ITERATIVE = """
type: iterative
max_iterations: 5
restart_triggers: [checker]
restart_policy: {enabled: true, restartable_stages: [maker]}
pipeline:
  initial_prompt: Begin
  stages:
    - {agent_id: maker, prompt_template: "{{previous}}"}
    - {agent_id: checker, prompt_template: "{{previous}}"}
"""
DEBATE = """
type: debate
topic: "{{input}}"
agent_ids: [one, two]
rounds: 2
moderator_agent_id: three
"""
SWARM = """
type: swarm
question: "{{.input}}"
agent_ids: [one, two, three]
strategy: weighted
confidence_threshold: 0
share_votes: true
judge_agent_id: four
retry_policy: {max_retries: 1, feedback_template: "{{error}}"}
"""
COORDINATION = """
entrypoint: lead
agents:
  - {name: lead, agent: team-lead, description: Leads.}
  - {name: helper, system_prompt: You help., tools: []}
deadline_seconds: 90
"""
EVERY = {
    "pipeline": PIPELINE,
    "fork-join": FORK_JOIN,
    "parallel": PARALLEL,
    "conditional": CONDITIONAL,
    "iterative": ITERATIVE,
    "debate": DEBATE,
    "swarm": SWARM,
    "coordination": COORDINATION,
}


def document(spec: str, name: str = "w", tail: str = "") -> str:
    """The text of a workflow file; its spec begins in line 5."""
    body = indent(dedent(spec).strip("\n"), "  ")
    return f"apiVersion: loom/v1\nkind: Workflow\nmetadata: {{name: {name}}}\nspec:\n{body}\n{tail}"


def workflows(folder: Path, *texts: str) -> Workflows:
    """What these texts define, each a file of its own."""
    for n, text in enumerate(texts):
        (folder / f"{n}.yaml").write_text(text, encoding="utf-8")
    return load(folder)


def workflow(folder: Path, spec: str, tail: str = "") -> Workflow:
    """The workflow ``w`` with this spec."""
    found = workflows(folder, document(spec, tail=tail))
    assert "w" in found.workflows, told(found)
    return found.workflows["w"]


def pattern(folder: Path, spec: str) -> Pattern:
    """Its pattern."""
    return workflow(folder, spec).pattern


def told(found: Workflows) -> list[str]:
    """The problems, without the folder before them."""
    return [str(problem).replace(f"{Path(problem.file).parent}/", "") for problem in found.problems]
