"""The command that hands over to the benchmark of the repository."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.heavy

ROOT = Path(__file__).parents[3]


def test_the_command_becomes_the_benchmark_of_the_repository_with_its_options(tmp_path: Path) -> None:
    code = "from loom_worker.cli.running import bench; bench()"
    command = [sys.executable, "-c", code, "--only", "nonsense", "--quick", "--json"]
    environ = {"PYTHONPATH": str(ROOT), "PATH": ""}
    ended = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 2
    assert "no such figures: nonsense; there are latency," in ended.stderr
