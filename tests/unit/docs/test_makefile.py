"""How `make` installs Loom, with a pip that only says what it was asked for."""

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from tests.unit.docs.pages import ROOT

INSTALLED = ".venv/.installed"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    return tmp_path


def install(checkout: Path, locked: str = ":", stderr: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    """``make``, with a pip that runs a command where it is asked for the exact versions."""
    python = checkout / ".venv" / "bin" / "python"
    python.write_text(f'#!/bin/sh\necho "$*" >> asked\ncase "$*" in *"-r constraints.txt"*) {locked} ;; esac\n')
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    command = ["make", "--no-print-directory", INSTALLED]
    environ = {"PATH": os.environ["PATH"]}
    return subprocess.run(
        command, cwd=checkout, env=environ, stdout=subprocess.PIPE, stderr=stderr, text=True, check=False
    )


def test_installing_says_how_long_it_takes_takes_locked_wheels_alone_and_is_done_once(checkout: Path) -> None:
    done = install(checkout)
    told = "installing Loom into .venv; the first time takes a minute\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, told, "")
    asked = (checkout / "asked").read_text()
    locked, ourselves = asked.splitlines()
    assert "--quiet --only-binary :all: -r constraints.txt" in locked, "nobody looks at a bar in a log"
    assert "--no-deps" in ourselves
    again = install(checkout)
    assert (again.returncode, "installing" in again.stdout, (checkout / "asked").read_text()) == (0, False, asked)


def test_a_terminal_shows_the_progress_of_pip(checkout: Path) -> None:
    ours, terminal = os.openpty()
    try:
        assert install(checkout, stderr=terminal).returncode == 0
    finally:
        os.close(ours)
        os.close(terminal)
    locked, _ = (checkout / "asked").read_text().splitlines()
    assert "--quiet" not in locked


def test_an_error_of_pip_is_shown_and_ends_it(checkout: Path) -> None:
    done = install(checkout, "echo 'ERROR: no such host' >&2; exit 3")
    assert done.returncode != 0
    assert "ERROR: no such host\n" in done.stderr
    assert "Error 3" in done.stderr
    assert not (checkout / INSTALLED).exists()
