import ast
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from loom_worker.agents.load import load
from loom_worker.cli.init import TEMPLATE, make, settings_of, sources
from loom_worker.cli.main import main
from loom_worker.core.env import KNOWN
from loom_worker.patterns.lint import lint
from loom_worker.tools import custom

FILES = {
    *(".env", ".env.example", ".gitignore", "README.md", "docker-compose.yml"),
    *("agents/analyst.yaml", "workflows/monthly_report.yaml"),
    *("tools/money.py", "patterns/shop/best_months.yaml", "workspaces/default/skills/.gitkeep"),
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    make(tmp_path / "new" / "project")
    return tmp_path / "new" / "project"


def test_a_project_has_an_agent_a_tool_a_pattern_and_a_compose_file(project: Path) -> None:
    assert {str(path.relative_to(project)) for path in project.rglob("*") if path.is_file()} == FILES
    assert (project / ".env").read_text() == (project / ".env.example").read_text()
    assert (project / ".env").stat().st_mode & 0o777 == 0o600


def test_its_settings_are_understood_and_name_its_folders(project: Path) -> None:
    found = settings_of(project, {})
    assert found.keys() == {
        *("LOOM_HOME", "LOOM_AGENTS_DIR", "LOOM_WORKFLOWS_DIR", "LOOM_PATTERNS_DIR", "LOOM_WORKSPACES_DIR"),
    }
    assert all((project / folder).is_dir() for name, folder in found.items() if name != "LOOM_HOME")
    named = {line.partition("=")[0] for line in (project / ".env").read_text().splitlines() if line[:1] not in "# "}
    assert named <= set(KNOWN)


def test_its_agent_tool_and_pattern_are_without_a_complaint(project: Path) -> None:
    agents = load(project / "agents")
    assert agents.problems == ()
    assert agents.agents["default"].custom == ("../tools/money.py",)
    tools = custom.load(agents.agents["default"].custom, project / "agents")
    assert (tools.problems, [tool.spec.name for tool in tools.tools]) == ((), ["convert"])
    assert lint(project / "patterns") == ()


def test_nothing_that_is_there_is_overwritten_and_then_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "analyst.yaml").write_text("mine")
    result = CliRunner().invoke(main, ["init", str(tmp_path)])
    assert (result.exit_code, result.stdout) == (1, "")
    assert "agents/analyst.yaml is there already; nothing was written" in result.stderr
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["analyst.yaml"]
    assert (tmp_path / "agents" / "analyst.yaml").read_text() == "mine"


def test_the_command_says_what_it_made_and_what_comes_next(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["init", str(tmp_path / "p")])
    assert result.exit_code == 0
    assert all(f"made {tmp_path / 'p' / name}\n" in result.stdout for name in FILES)
    assert f"cd {tmp_path / 'p'}" in result.stdout


def test_without_a_folder_it_is_the_one_that_the_command_runs_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(main, ["init"]).exit_code == 0
    assert (tmp_path / "agents" / "analyst.yaml").exists()


def test_a_folder_that_cannot_be_written_is_a_sentence() -> None:
    result = CliRunner().invoke(main, ["init", "/proc/project"])
    assert result.exit_code == 1
    assert result.stderr.startswith("loom: /proc/project")
    assert "cannot be written" in result.stderr


def test_the_files_that_ship_parse(project: Path) -> None:
    assert TEMPLATE.is_dir()
    for path in project.rglob("*"):
        if path.suffix in (".yaml", ".yml"):
            assert yaml.safe_load(path.read_text())
        elif path.suffix == ".py":
            ast.parse(path.read_text())
    assert len(sources()) == len(FILES) - 1
