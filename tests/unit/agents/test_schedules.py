"""``schedule`` and ``schedules``, read from files of agents and workflows."""

from pathlib import Path

import pytest

from loom_worker.agents.load import load
from loom_worker.core.values.schedules import Schedule
from loom_worker.workflows.load import load as load_workflows

HEAD = "kind: Agent\napiVersion: loom/v1\nmetadata: {name: anna}\nspec:\n"
FLOW = """\
kind: Workflow
apiVersion: loom/v1
metadata: {name: weekly}
spec:
  type: fork-join
  prompt: "Report on {{region}}, by {{amount}}."
  agent_ids: [default]
"""


def agent_schedules(folder: Path, text: str) -> tuple[Schedule, ...]:
    (folder / "anna.yaml").write_text(HEAD + text)
    found = load(folder)
    assert found.problems == ()
    return found.agents["anna"].schedules


def test_an_agent_has_one_schedule_or_several_with_names(tmp_path: Path) -> None:
    one, morning = agent_schedules(
        tmp_path,
        "  schedule: {cron: '@daily', input: What is new?, session_mode: shared, workspace: north}\n"
        "  schedules:\n"
        "    - {name: morning, cron: 0  7 * * 1-5, timezone: Europe/Berlin, input: Hello, enabled: false,\n"
        "       session_mode: resume, skip_if_running: true, max_execution_seconds: 60}\n",
    )
    assert (one.name, one.plan.cron, one.plan.timezone, one.input) == ("agent:anna", "@daily", "UTC", "What is new?")
    assert (one.session_mode, one.workspace, one.is_enabled, one.skips_if_running) == (
        "persistent",
        "north",
        True,
        False,
    )
    assert (morning.name, morning.plan.cron, morning.plan.timezone) == (
        "agent:anna:morning",
        "0 7 * * 1-5",
        "Europe/Berlin",
    )
    assert (morning.is_enabled, morning.skips_if_running, morning.max_execution_s) == (False, True, 60.0)
    assert morning.session_mode == "persistent"


@pytest.mark.cases(
    ("text", "line", "said"),
    [
        ("  schedule: {cron: 0 9 * *, input: x}", 5, "five fields"),
        (
            "  schedule:\n    cron: 0 9 * * *\n    timezone: Europe/Berln\n    input: x",
            7,
            "did you mean Europe/Berlin?",
        ),
        ("  schedule: {cron: 0 9 * * *}", 5, "missing"),
        ("  schedule: {cron: 0 9 * * *, input: x, session_mode: old}", 5, "new, persistent, shared"),
        ("  schedule: {cron: 0 9 * * *, input: x, workspace: a/b}", 5, "workspace: a name of letters"),
        ("  schedules: [{cron: 0 9 * * *, input: x}]", 5, "missing"),
        ("  schedules: [{name: a, input: x}]", 5, "missing"),
        (
            "  schedules:\n    - {name: a, cron: '@daily', input: x}\n    - {name: a, cron: '@daily', input: x}",
            7,
            "'a'",
        ),
    ],
)
def test_an_error_names_file_and_line(tmp_path: Path, text: str, line: int, said: str) -> None:
    (tmp_path / "anna.yaml").write_text(HEAD + text + "\n")
    [problem] = load(tmp_path).problems
    assert (Path(problem.file).name, problem.line) == ("anna.yaml", line)
    assert said in str(problem)


def test_a_workflows_schedule_gives_its_runs_their_variables_as_they_are_written(tmp_path: Path) -> None:
    schedule = "schedule: {cron: 0 9 * * 1, variables: {region: north, amount: 1.10}}\n"
    (tmp_path / "weekly.yaml").write_text(FLOW + schedule)
    found = load_workflows(tmp_path)
    assert found.problems == ()
    read = found.workflows["weekly"].schedule
    assert read is not None
    assert (read.name, dict(read.variables)) == ("workflow:weekly", {"region": "north", "amount": "1.10"})


def test_a_schedule_without_a_time_only_gives_variables(tmp_path: Path) -> None:
    (tmp_path / "weekly.yaml").write_text(FLOW + "schedule: {variables: {region: north, amount: 2}}\n")
    workflow = load_workflows(tmp_path).workflows["weekly"]
    assert workflow.schedule is None
    assert dict(workflow.variables) == {"region": "north", "amount": "2"}


def test_a_workflows_unusable_expression_and_unknown_key_are_reported_with_their_lines(tmp_path: Path) -> None:
    (tmp_path / "weekly.yaml").write_text(FLOW + "schedule:\n  crn: 0 9 * * 1\n")
    [warning] = [each for each in load_workflows(tmp_path).problems if each.line == 9]
    assert "did you mean" in str(warning)
    (tmp_path / "weekly.yaml").write_text(FLOW + "schedule:\n  cron: 0 99 * * 1\n")
    [problem] = load_workflows(tmp_path).problems
    assert (problem.line, problem.is_warning) == (9, False)
    assert "cron" in str(problem)
