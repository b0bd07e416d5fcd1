"""A Loom process with the harness' tools in every agent's hands and, perhaps, a seeded bug.

python -m tests.chaos.process [--mutant NAME] worker --queues turn --name worker-1
"""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from loom_worker.cli import main as command_line
from loom_worker.supervise.processes import shimmed
from loom_worker.tasks import alone, publish
from loom_worker.toolbox import Own, Toolbox
from loom_worker.values.agents import Agent
from tests.chaos import equipment, mutants


def main(arguments: list[str]) -> int:
    """Become that process; returns or raises SystemExit as the command does."""
    mutant = ""
    if arguments[0] == "--mutant":
        mutant, arguments = arguments[1], arguments[2:]
        mutants.apply(mutant)
    _equip(Path(os.environ[equipment.EFFECTS]))
    _take_along(mutant)
    if arguments[0] == "alone":
        return alone.main(*arguments[1:])
    command_line.main(args=arguments, prog_name="loom")
    return 0


def _equip(effects: Path) -> None:
    packaged = Toolbox.own

    def with_ours(toolbox: Toolbox, agent: Agent, database: str | None = None) -> Own:
        own = packaged(toolbox, agent, database)
        return replace(own, tools=own.tools + equipment.tools(effects))

    Toolbox.own = with_ours  # type: ignore[method-assign,assignment]  # a process of the harness, not of a user


def _take_along(mutant: str) -> None:
    """The process of a last attempt has the same tools, and the same bug."""
    ours = (sys.executable, "-m", "tests.chaos.process", *(("--mutant", mutant) if mutant else ()), "alone")

    def run_alone(lane: str, token: str, turn_id: str, fence: int) -> int:
        return subprocess.run(shimmed((*ours, lane, token, turn_id, str(fence))), check=False).returncode

    publish._run_alone = run_alone  # type: ignore[assignment]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
