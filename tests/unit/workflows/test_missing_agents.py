from pathlib import Path

from loom_worker.agents import load as agent_files
from loom_worker.workflows.load import faults
from tests.unit.workflows import files
from tests.unit.workflows.files import workflow

AGENTS = "agent: {name: one}\n---\nagent: {name: three}\n---\nagent: {name: two, llm: [x]}\n"


def told(folder: Path, spec: str) -> list[str]:
    found = workflow(folder, spec)
    (folder / "agents").mkdir()
    (folder / "agents" / "a.yaml").write_text(AGENTS, encoding="utf-8")
    problems = faults(found, agent_files.load(folder / "agents"))
    return [str(problem).replace(f"{folder}/", "") for problem in problems]


def test_agents_that_are_missing_or_broken_are_told_with_their_lines(tmp_path: Path) -> None:
    assert told(tmp_path, files.SWARM.replace("four", "thre")) == [
        "0.yaml:7: spec.agent_ids[1]: The agent 'two' cannot work, its file is broken: "
        "agents/a.yaml:5: agent two: agent.llm: a mapping is needed, not list",
        "0.yaml:11: spec.judge_agent_id: there is no agent 'thre'; did you mean three?",
    ]


def test_agents_within_branches_are_found_and_each_told_once(tmp_path: Path) -> None:
    spec = files.CONDITIONAL.replace("two", "nobody").replace("sorter", "default")
    assert told(tmp_path, spec) == [
        "0.yaml:11: spec.branches.other.tasks[0].agent_id: there is no agent 'nobody'; "
        "agents are read from LOOM_AGENTS_DIR"
    ]


def test_agents_of_the_file_exist(tmp_path: Path) -> None:
    assert told(tmp_path, files.COORDINATION.replace("team-lead", "one")) == []
