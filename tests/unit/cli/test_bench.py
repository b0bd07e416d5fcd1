import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from loom_worker.cli.bench import NoBenchmark, bench, root_of_benchmark

ROOT = Path(__file__).parents[3]


def test_the_command_becomes_the_benchmark_of_the_repository_with_its_options(tmp_path: Path) -> None:
    code = "from loom_worker.cli.bench import bench; bench()"
    command = [sys.executable, "-c", code, "--only", "nonsense", "--quick", "--json"]
    environ = {"PYTHONPATH": str(ROOT), "PATH": ""}
    ended = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 2
    assert "no such figures: nonsense; there are latency," in ended.stderr


def test_a_checkout_has_the_benchmark() -> None:
    assert root_of_benchmark(ROOT) == ROOT


def test_an_installed_package_says_where_the_benchmark_is(tmp_path: Path) -> None:
    with pytest.raises(NoBenchmark, match="make bench"):
        root_of_benchmark(tmp_path)


def test_the_help_names_every_option() -> None:
    told = CliRunner().invoke(bench, ["--help"]).output
    assert all(option in told for option in ("--only", "--quick", "--json"))
