"""What a turn costs may not grow unnoticed: its counts stay under the ceilings of bench/ceilings.py."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.heavy, pytest.mark.takes(30)]

ROOT = Path(__file__).parents[3]


def test_a_turn_stays_within_its_budget() -> None:
    command = [sys.executable, "-m", "bench", "--only", "budget", "--quick", "--check"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    assert ended.returncode == 0, ended.stdout + ended.stderr
