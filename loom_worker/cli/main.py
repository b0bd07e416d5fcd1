"""The group of all commands, and what an error of each kind exits with."""

import importlib
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from loom_worker import __version__
from loom_worker.cli.init import settings_of
from loom_worker.core.errors import BadSettings, LoomError
from loom_worker.core.text import clean

COMMANDS = {
    "init": "loom_worker.cli.init",
    "up": "loom_worker.cli.process",
    "status": "loom_worker.cli.running",
    "stop": "loom_worker.cli.running",
    "logs": "loom_worker.cli.running",
    "ask": "loom_worker.cli.talk",
    "chat": "loom_worker.cli.talk",
    "sessions": "loom_worker.cli.sessions",
    "turns": "loom_worker.cli.turns",
    "trace": "loom_worker.cli.trace",
    "workflow": "loom_worker.cli.workflow",
    "runs": "loom_worker.cli.runs",
    "schedules": "loom_worker.cli.resources",
    "agents": "loom_worker.cli.agents",
    "learned": "loom_worker.cli.learned",
    "messages": "loom_worker.cli.resources",
    "tools": "loom_worker.cli.resources",
    "models": "loom_worker.cli.resources",
    "patterns": "loom_worker.cli.patterns",
    "skill": "loom_worker.cli.skill",
    "usage": "loom_worker.cli.resources",
    "keys": "loom_worker.cli.keys",
    "users": "loom_worker.cli.resources",
    "facts": "loom_worker.cli.resources",
    "audit": "loom_worker.cli.keys",
    "doctor": "loom_worker.cli.doctor",
    "backup": "loom_worker.cli.running",
    "move": "loom_worker.cli.move",
    "bench": "loom_worker.cli.running",
    "prepare": "loom_worker.cli.process",
    "web": "loom_worker.cli.process",
    "worker": "loom_worker.cli.process",
    "beat": "loom_worker.cli.process",
    "flower": "loom_worker.cli.process",
}
"""Command to the module that has it under the same name, in the order of the help."""


class Commands(click.Group):
    """Imports a command when it is needed, and turns errors into exit codes: 2 for settings, 1 for all else."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of COMMANDS."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """None if there is no such command."""
        if cmd_name not in COMMANDS:
            return None
        command = getattr(importlib.import_module(COMMANDS[cmd_name]), cmd_name)
        assert isinstance(command, click.Command)  # noqa: S101  # for mypy; a test loads them all
        return command

    def main(self, *args: Any, **options: Any) -> Any:
        """Run the program; output that cannot be written is a sentence, too."""
        with output_or_exit():
            return super().main(*args, **options)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an error of ours is a sentence, not a traceback."""
        try:
            ctx.obj = settings_of(Path.cwd(), os.environ)
            os.environ.update(ctx.obj)
            ctx.color = False if os.environ.get("NO_COLOR") else None
            return super().invoke(ctx)
        except BadSettings as error:
            for complaint in str(error.args[0]).splitlines():
                click.echo(f"loom: {clean(complaint)}", err=True)
            ctx.exit(2)
        except LoomError as error:
            click.echo(f"loom: {_shown(error)}", err=True)
            ctx.exit(1)


def _shown(error: LoomError) -> str:
    """Its text without what a terminal would obey: much of it can be a stranger's.

    Lines after the first are indented, so that none of them passes for one of Loom's.
    """
    return "\n  ".join(clean(str(error)).splitlines())


@contextmanager
def output_or_exit() -> Iterator[None]:
    """Say in one line that what the program says cannot be written, and exit with 1."""
    try:
        yield
    except OSError as error:
        if not _is_of_output(error):
            raise
        click.echo(f"loom: the output cannot be written: {error.strerror}", err=True)
        # What is left in the buffer goes nowhere, or the interpreter would try, and fail, again as it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _is_of_output(error: OSError) -> bool:
    """True if it arose while a command wrote what it has to say; any other is a bug, and shows."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(each.f_code is click.echo.__code__ or each.f_globals["__name__"] == "rich.console" for each in frames)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="loom")
def main() -> None:
    """Durable background turns for LLM agents.

    `loom up` starts everything on this machine; `loom ask "…"` then asks it something.
    """


if __name__ == "__main__":
    main()
