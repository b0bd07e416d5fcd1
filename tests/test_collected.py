"""What the guarantees rest on is run by `make test-all`."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.heavy

ROOT = Path(__file__).parents[1]
NAMED = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")))


def test_every_test_that_the_guarantees_name_is_run_by_test_all() -> None:
    *options, folder = _arguments("test-all")
    assert folder == "tests"
    files = [
        path for path in (ROOT / folder).rglob("test_*.py") if NAMED & set(re.findall(r"test_\w+", path.read_text()))
    ]
    command = [sys.executable, "-m", "pytest", *options, "-n", "0", "--collect-only", "-q", *map(str, files)]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    assert sorted(NAMED - set(re.findall(r"::(test_\w+)", listed))) == [], listed[-2000:]


def _arguments(target: str) -> list[str]:
    """What `make` gives to pytest for this target."""
    environ = {"PATH": os.environ["PATH"]}  # a `make` above this test has said things that are not for this one
    told = subprocess.run(
        ["make", "--dry-run", target], cwd=ROOT, env=environ, capture_output=True, text=True, check=True
    )
    [line] = [line for line in told.stdout.splitlines() if " -m pytest " in line]
    return shlex.split(line.partition(" -m pytest ")[2])
