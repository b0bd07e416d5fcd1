"""`loom bench`: runs the benchmark, which is in the repository next to the package."""

import os
import sys
from pathlib import Path

import click

from loom_worker.core.errors import LoomError


class NoBenchmark(LoomError):
    """This installation came without it."""


@click.command()
@click.option("--only", metavar="NAMES", help="These figures alone, with commas between; a wrong one lists them all.")
@click.option("--quick", is_flag=True, help="Fewer turns: the order of magnitude, in minutes.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a figure, and no table.")
def bench(only: str | None, *, quick: bool, as_json: bool) -> None:
    """Measure Loom on this machine, each time on a home of its own that is removed again."""
    os.chdir(root_of_benchmark(Path(__file__).parents[2]))
    options = [*(("--only", only) if only else ()), *(("--quick",) if quick else ()), *(("--json",) if as_json else ())]
    # In place of this process: Ctrl-C and SIGTERM then reach the one that must end what it has started.
    os.execv(sys.executable, [sys.executable, "-m", "bench", *options])  # noqa: S606  # our own interpreter, no shell


def root_of_benchmark(folder: Path) -> Path:
    """The folder, if it is a checkout of the repository.

    Raises:
        NoBenchmark: it is not; the text says where there is one.
    """
    if not (folder / "bench" / "run.py").is_file():
        raise NoBenchmark("the benchmark is in Loom's repository, not in the installed package: run `make bench` there")
    return folder
