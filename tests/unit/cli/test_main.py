import errno
import socket
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from loom_worker.cli import process
from loom_worker.cli.main import COMMANDS, Commands, main
from loom_worker.core.errors import BadSettings, LoomError
from loom_worker.tasks import app

DOCS = Path(__file__).parents[3] / "docs"
HEAVY = {"celery", "sqlalchemy", "flask", "sklearn", "anthropic", "flower", "redis", "tiktoken", "rich"}


def command_of(name: str) -> click.Command:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    return command


def commands_of(command: click.Command) -> dict[str, click.Command]:
    """The commands of a group; of a plain command none."""
    return command.commands if isinstance(command, click.Group) else {}


SPOKEN = [*COMMANDS, *(f"{name} {sub}" for name in COMMANDS for sub in commands_of(command_of(name)))]


@pytest.mark.cases("spoken", SPOKEN)
def test_every_command_has_help(spoken: str) -> None:
    result = CliRunner().invoke(main, [*spoken.split(), "--help"])
    assert result.exit_code == 0
    assert result.stdout.startswith(f"Usage: main {spoken}")


@pytest.mark.cases("name", COMMANDS)
def test_every_command_and_option_is_documented(name: str) -> None:
    text = (DOCS / "commands.md").read_text(encoding="utf-8")
    _, found, rest = text.partition(f"## `loom {name}`")
    assert found, f"docs/commands.md has no section on loom {name}"
    section = rest.partition("\n## ")[0]
    command = command_of(name)
    assert [sub for sub in commands_of(command) if f"`loom {name} {sub}" not in section] == []
    told = [command, *commands_of(command).values()]
    options = [max(p.opts, key=len) for one in told for p in one.params if isinstance(p, click.Option)]
    assert [option for option in options if f"`{option}" not in section] == []


def test_what_prints_data_can_print_json() -> None:
    plain = {"init", "up", "stop", "chat", "prepare", "web", "worker", "beat", "flower"}
    for name in set(COMMANDS) - plain:
        for command in (command_of(name), *commands_of(command_of(name)).values()):
            is_silent = isinstance(command, click.Group) and not command.invoke_without_command
            has_json = any("--json" in parameter.opts for parameter in command.params)
            assert has_json or is_silent, command.name


def test_every_wrong_setting_is_told_and_exits_2(tmp_path: Path) -> None:
    env = {"LOOM_HOME": str(tmp_path), "LOOM_PORT": "many", "LOOM_LEASE_S": "-1"}
    result = CliRunner().invoke(main, ["up"], env=env)
    assert result.exit_code == 2
    lines = result.stderr.splitlines()
    assert [line.split("=")[0] for line in lines] == ["loom: LOOM_LEASE_S", "loom: LOOM_PORT"]


def test_the_demo_needs_no_key_even_if_the_environment_wants_another_model(tmp_path: Path) -> None:
    env = {"LOOM_HOME": str(tmp_path), "LOOM_PROVIDER": "anthropic", "ANTHROPIC_API_KEY": None}
    # The port is taken, so `up` ends before it starts anything, but after it read the settings.
    with socket.create_server(("127.0.0.1", 0)) as taken:
        env["LOOM_PORT"] = str(taken.getsockname()[1])
        assert CliRunner().invoke(main, ["up"], env=env).exit_code == 2
        assert CliRunner().invoke(main, ["up", "--demo"], env=env).exit_code == 1


def test_an_unknown_command_exits_2() -> None:
    assert CliRunner().invoke(main, ["fly"]).exit_code == 2


@pytest.mark.parametrize("arguments", [["worker", "--queues", "turn,nothing"], ["worker", "--queues", ","]])
def test_an_unknown_queue_is_refused(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert "turn, tool, judge, workflow, webhook" in result.stderr


def test_the_queues_are_those_of_the_celery_app() -> None:
    assert process.QUEUES == app.QUEUES


def test_help_and_ask_load_nothing_heavy() -> None:
    code = "import sys, click; from loom_worker.cli.main import main, COMMANDS\n"
    code += "for name in COMMANDS: main.get_command(click.Context(main), name)\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert HEAVY.isdisjoint(done.stdout.split())


def test_nothing_runs_where_nothing_runs(tmp_path: Path) -> None:
    env = {"LOOM_HOME": str(tmp_path), "LOOM_URL": "http://127.0.0.1:9"}
    status = CliRunner().invoke(main, ["status"], env=env)
    assert status.exit_code == 1
    assert "Loom is not running" in status.stdout
    stop = CliRunner().invoke(main, ["stop"], env=env)
    assert stop.exit_code == 0
    assert "Loom is not running" in stop.stdout


@pytest.mark.parametrize(("kind", "exit_code", "begin"), [(LoomError, 1, "  "), (BadSettings, 2, "loom: ")])
def test_an_error_cannot_steer_the_terminal_or_say_a_line_of_its_own(
    kind: type[LoomError], exit_code: int, begin: str
) -> None:
    def fail() -> None:
        raise kind("it is \x1b[2J\x9b1mbroken\u202e\rloom: fine\u2028loom: all\nloom: well")

    result = CliRunner().invoke(Commands("loom", commands={}, callback=fail, invoke_without_command=True), [])
    assert result.exit_code == exit_code
    lines = [f"{begin}loom: {word}\n" for word in ("fine", "all", "well")]
    assert result.stderr == "".join(["loom: it is [2J1mbroken\n", *lines])


def test_an_error_of_the_system_that_is_not_of_the_output_shows() -> None:
    def fail() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    result = CliRunner().invoke(Commands("loom", commands={}, callback=fail, invoke_without_command=True), [])
    assert isinstance(result.exception, OSError)
    assert "output" not in result.stderr
