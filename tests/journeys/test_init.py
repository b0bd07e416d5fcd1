"""What `loom init` makes, run as a user does: in its folder, with no variable of Loom's set."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from loom_worker.core.isolation import landlock
from loom_worker.supervisor import home
from loom_worker.supervisor.ready import readiness
from tests.support.processes import killed_at_the_end
from tests.support.system import START_S, STOP_S, TURN_S, loom
from tests.support.until import until
from tests.support.webhook_receiver import unused_port

pytestmark = [pytest.mark.journey, pytest.mark.heavy, pytest.mark.takes(20)]
PEEK = '''
from pathlib import Path

from loom_worker import tool

@tool(read_only=True)
def peek() -> str:
    """Look into the settings."""
    project = Path(__file__).parents[1]
    found = []
    for name in ("README.md", ".env"):
        try:
            found.append(f"{name}: {len((project / name).read_text()) > 0}")
        except PermissionError:
            found.append(f"{name}: refused")
    return ", ".join(found)
'''
PEEKER = """
apiVersion: loom/v1
kind: Agent
metadata: {name: peeker}
spec: {backend: false, tools: [../tools/peek.py]}
"""
ENVIRON = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {**ENVIRON, "HOME": str(folder)}
    return subprocess.run(
        loom(*arguments), cwd=folder, env=environ, capture_output=True, text=True, timeout=TURN_S, check=False
    )


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A project in which Loom runs."""
    place = tmp_path_factory.mktemp("init")
    assert run(place, "init", "shop").returncode == 0
    folder = place / "shop"
    (folder / "tools" / "peek.py").write_text(PEEK)
    (folder / "agents" / "peeker.yaml").write_text(PEEKER)
    command = loom("up", "--port", str(unused_port()))
    environ = {**ENVIRON, "HOME": str(place)}
    with (place / "up.out").open("wb") as output:
        up = subprocess.Popen(command, cwd=folder, env=environ, stdout=output, stderr=output)
    with killed_at_the_end(up.pid):
        until(lambda: serves(folder), START_S, "Loom is ready")
        yield folder
        up.send_signal(signal.SIGTERM)
        assert up.wait(timeout=STOP_S) == 0


def serves(folder: Path) -> bool:
    state = home.running(folder / ".loom")
    body = readiness(state.url) if state else None
    return bool(body and body["ready"])


def test_its_pattern_answers(project: Path) -> None:
    answer = run(project, "ask", "Which month brought in most?")
    assert (answer.returncode, answer.stderr) == (0, "")
    assert "(shop/best_months)" in answer.stdout
    assert "\n1. 20" in answer.stdout


def test_its_tool_answers(project: Path) -> None:
    answer = run(project, "ask", 'convert {"amount": 54, "currency": "USD"}')
    assert answer.returncode == 0
    assert answer.stdout == 'convert gave: {"amount":50.0,"currency":"EUR"}\n'


def test_its_doctor_finds_nothing_wrong(project: Path) -> None:
    looked = run(project, "doctor")
    assert looked.returncode == 0
    assert "problem  " not in looked.stdout
    assert f"default, peeker in {project / 'agents'}" in looked.stdout


@pytest.mark.skipif(not landlock.version(), reason="nothing is closed to tools without Landlock")
def test_a_tool_of_another_agent_of_the_project_works_and_cannot_read_its_keys(project: Path) -> None:
    answer = run(project, "ask", "peek {}", "--agent", "peeker")
    assert answer.returncode == 0
    assert answer.stdout == "peek gave: README.md: True, .env: refused\n"


def test_from_outside_the_folder_its_loom_is_not_found(project: Path) -> None:
    answer = run(project.parent, "ask", "Which month brought in most?")
    assert answer.returncode == 1
    assert f"Loom is not running on {project.parent / '.loom'};" in answer.stderr
