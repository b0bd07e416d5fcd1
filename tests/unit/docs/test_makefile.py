"""What `make` shows while it installs, with a pip that only says what the real one does."""

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from tests.unit.docs.pages import ROOT

PACKAGES = [f"package{n}" for n in range(1, 27)]
PIP = """#!/bin/sh
case "$*" in
  *"-r constraints.txt"*) {body} ;;
esac
"""
SAYS = [
    "echo 'Ignoring package1: markers do not match your environment'",
    *(
        f"echo 'Collecting {name}==1.0 (from -r constraints.txt (line 3))'; echo '  Downloading x.whl'"
        for name in PACKAGES[1:-1]
    ),
    "echo 'Processing /wheels/package26-1.0-py3-none-any.whl (from -r constraints.txt (line 3))'",
    "echo 'Installing collected packages: package1, package2'",
]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "pyproject.toml").touch()
    locked = (f"{name}==1.0 \\\n    --hash=sha256:{'0' * 64}\n" for name in PACKAGES)
    (tmp_path / "constraints.txt").write_text("".join(locked))
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    return tmp_path


def install(checkout: Path, *body: str) -> subprocess.CompletedProcess[str]:
    python = checkout / ".venv" / "bin" / "python"
    python.write_text(PIP.format(body="; ".join(body)))
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    environ = {"PATH": os.environ["PATH"]}
    command = ["make", "--no-print-directory", ".venv/.installed"]
    return subprocess.run(command, cwd=checkout, env=environ, capture_output=True, text=True, check=False)


def test_installing_counts_the_packages_and_says_what_it_does(checkout: Path) -> None:
    done = install(checkout, *SAYS)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert lines == [
        "installing Loom into .venv; the first time takes a minute",
        "10 of 26 packages  package10==1.0",
        "20 of 26 packages  package20==1.0",
        "26 of 26 packages  package26-1.0-py3-none-any.whl",
        "unpacking them; this takes as long again",
    ]
    assert (checkout / ".venv" / ".installed").exists()


def test_what_pip_complains_of_is_shown_and_ends_it(checkout: Path) -> None:
    done = install(checkout, SAYS[1], "echo 'ERROR: no such host' >&2", "exit 3")
    assert done.returncode != 0
    assert "ERROR: no such host\n" in done.stdout
    assert "Error 3" in done.stderr
    assert not (checkout / ".venv" / ".installed").exists()
