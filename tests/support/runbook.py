"""Runs the commands of docs/runbook.md as the page has them, on a Loom that runs."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.system import TURN_S, System

PAGE = Path(__file__).parents[2] / "docs" / "runbook.md"
_BLOCK = re.compile(r"<!-- run: ([^>]+?) -->\n *```console\n(.*?)^ *```", re.DOTALL | re.MULTILINE)


def blocks() -> dict[str, str]:
    """The blocks of commands with what one then sees, by their names."""
    return {
        name: "\n".join(line.strip() for line in body.splitlines()) for name, body in _BLOCK.findall(PAGE.read_text())
    }


def follow(system: System, name: str, **variables: str) -> str:
    """Run a block; AssertionError unless each command succeeds and says what the page says. All that they said.

    Args:
        variables: such as TURN, for the shell.
    """
    home = str(system.home)
    environ = {**system.environ, **variables, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    said = []
    for step in re.split(r"^\$ ", blocks()[name], flags=re.MULTILINE)[1:]:
        command, _, expected = step.partition("\n")
        done = subprocess.run(
            ["bash", "-c", command.replace("~/.loom", home)],
            env=environ,
            capture_output=True,
            text=True,
            timeout=TURN_S,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        assert is_as_told(done.stdout, expected), f"{command} said\n{done.stdout}\nand not\n{expected}"
        said.append(done.stdout)
    return "".join(said)


def is_as_told(said: str, expected: str) -> bool:
    """Compare, whatever white space there is; in what is expected an ellipsis stands for anything."""
    parts = [re.escape(" ".join(part.split())) for part in expected.split("…")]
    pattern = r".*?".join(part.replace("\\ ", " *") if part != "\\ " else " *" for part in parts)
    return re.fullmatch(f" *{pattern} *", " ".join(said.split())) is not None
