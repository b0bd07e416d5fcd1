"""A Loom process with the harness' tools in every agent's hands and, perhaps, a seeded bug.

python -m tests.chaos.process [--mutant NAME] worker --queues turn --name worker-1
"""

import os
import sys
from dataclasses import replace
from pathlib import Path

from loom_worker.cli import main as command_line
from loom_worker.core.values.agents import Agent
from loom_worker.runtime import isolated
from loom_worker.runtime.tool_sets import Own, ToolProvider
from loom_worker.tasks import dispatch
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
        return isolated.main(*arguments[1:])
    command_line.main(args=arguments, prog_name="loom")
    return 0


def _equip(effects: Path) -> None:
    packaged = ToolProvider.own

    def with_ours(tool_provider: ToolProvider, agent: Agent, database: str | None = None) -> Own:
        own = packaged(tool_provider, agent, database)
        return replace(own, tools=own.tools + equipment.tools(effects))

    ToolProvider.own = with_ours  # type: ignore[method-assign,assignment]  # a process of the harness, not of a user


def _take_along(mutant: str) -> None:
    """The process of a last attempt has the same tools, and the same bug."""
    ours = (sys.executable, "-m", "tests.chaos.process", *(("--mutant", mutant) if mutant else ()), "alone")
    dispatch.CeleryDispatcher.isolated_command = ours


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
