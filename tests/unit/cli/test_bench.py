from pathlib import Path

import pytest
from click.testing import CliRunner

from loom_worker.cli.running import NoBenchmark, bench, root_of_benchmark

ROOT = Path(__file__).parents[3]


def test_a_checkout_has_the_benchmark() -> None:
    assert root_of_benchmark(ROOT) == ROOT


def test_an_installed_package_says_where_the_benchmark_is(tmp_path: Path) -> None:
    with pytest.raises(NoBenchmark, match="make bench"):
        root_of_benchmark(tmp_path)


def test_the_help_names_every_option() -> None:
    told = CliRunner().invoke(bench, ["--help"]).output
    assert all(option in told for option in ("--only", "--quick", "--json"))
