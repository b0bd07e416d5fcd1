import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from loom_worker.core.values.problems import Problem
from loom_worker.supervisor.doctor import Doctor
from loom_worker.supervisor.launcher import Launcher
from tests.support.processes import is_alive
from tests.support.until import until


@contextmanager
def looking(folder: Path, **env: str) -> Iterator[Doctor]:
    doctor = Doctor({"PATH": os.environ["PATH"], "LOOM_HOME": str(folder / "home"), **env}, Launcher())
    try:
        yield doctor
    finally:
        doctor.stop()


def found(folder: Path, **env: str) -> tuple[Problem, ...]:
    with looking(folder, LOOM_AGENTS_DIR=str(folder), **env) as doctor:
        until(lambda: doctor.problems() is not None, 60, "what the doctor found")
        return doctor.problems() or ()


@pytest.mark.heavy
def test_what_the_process_finds_are_the_values_that_it_found(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("agent:\n  name: a\n  tools: [exec_sql]\n", encoding="utf-8")
    variable, tool = found(tmp_path, LOOM_MODLE="x")
    assert (variable.field, tool.file, tool.line) == ("LOOM_MODLE", str(tmp_path / "a.yaml"), 3)
    assert tool.fix == "did you mean execute_sql?"


@pytest.mark.heavy
def test_a_process_that_a_users_file_ends_is_told_and_not_taken_for_no_problem(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import os\nos._exit(0)\n", encoding="utf-8")
    (tmp_path / "a.yaml").write_text("agent: {name: a, tools: [mine.py]}\n", encoding="utf-8")
    (problem,) = found(tmp_path)
    assert problem.text.startswith("agents and tools could not be looked at: `loom doctor --problems` ended")


@pytest.mark.heavy
def test_a_process_that_looks_still_is_ended_with_its_owner(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    text = f"import os, pathlib, threading\npathlib.Path({str(pid)!r}).write_text(str(os.getpid()))\n"
    (tmp_path / "mine.py").write_text(f"{text}threading.Event().wait()\n", encoding="utf-8")
    (tmp_path / "a.yaml").write_text("agent: {name: a, tools: [mine.py]}\n", encoding="utf-8")
    with looking(tmp_path, LOOM_AGENTS_DIR=str(tmp_path)) as doctor:
        number = int(until(lambda: pid.exists() and pid.read_text(), 60, "the user's file"))
        assert doctor.problems() is None
        assert is_alive(number)
    until(lambda: not is_alive(number), 10, "the end of the doctor")


@pytest.mark.heavy
def test_a_users_file_finds_no_secret_in_the_environment_of_the_process_that_looks(tmp_path: Path) -> None:
    text = "import os, pathlib\nfound = [name for name, value in os.environ.items() if 's3cret' in value]\n"
    text += f"pathlib.Path({str(tmp_path / 'found')!r}).write_text(repr(found))\n"
    (tmp_path / "mine.py").write_text(text, encoding="utf-8")
    (tmp_path / "a.yaml").write_text("agent: {name: a, tools: [mine.py]}\n", encoding="utf-8")
    keys = {"ANTHROPIC_API_KEY": "s3cret", "LOOM_API_KEYS": "w=s3cret", "LOOM_SECRET_X": "s3cret"}
    (problem,) = found(tmp_path, **keys)
    assert "no tool in it" in problem.text
    assert (tmp_path / "found").read_text() == "[]"
