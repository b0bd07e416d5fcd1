"""A server of the harness as a real process."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[3]


@contextmanager
def serving(module: str, log: Path, *options: str) -> Iterator[str]:
    """Its URL, for as long as it runs; it must end by itself when asked to."""
    command = (sys.executable, "-m", f"tests.chaos.{module}", "--log", str(log), *options)
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.terminate()
            assert process.wait(timeout=60) == 0
