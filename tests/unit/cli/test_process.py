import logging
import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from loom_worker.cli.main import main
from loom_worker.core.settings import Settings
from loom_worker.core.sqlite_driver import sqlite3


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """Commands that run processes set logging up for the whole process; here that is the tests' own."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LOOM_BACKEND_URL", "no url at all"),
        ("LOOM_BACKEND_URL", "mssql://reader:hidden@host/shop"),
        ("LOOM_WEBHOOK_SECRET", "whsec_hidden"),
        ("LOOM_REDIS_URL", "redis://127.0.0.1:99999/0"),
        ("LOOM_REDIS_URL", "redis://:hidden@127.0.0.1:6379/0?no_such_option=1"),
        ("LOOM_MODEL", "scripted-demo+xx"),
        ("OLLAMA_HOST", "no host at all"),
        ("ANTHROPIC_BASE_URL", "foo"),
        ("LOOM_BLOB_DIR", "/etc/passwd"),
    ],
)
@pytest.mark.parametrize("command", ["prepare", "web", "worker", "beat"])
def test_a_value_that_no_turn_could_use_is_refused_at_the_start(
    tmp_path: Path, command: str, name: str, value: str
) -> None:
    home = tmp_path / "home"
    done = CliRunner().invoke(main, [command], env={"LOOM_HOME": str(home), name: value})
    assert done.exit_code == 2
    assert [line for line in done.stderr.splitlines() if not line.startswith(f"loom: {name}")] == []
    assert "hidden" not in done.output
    assert not home.exists()


@pytest.mark.parametrize("command", ["prepare", "up"])
def test_a_home_that_cannot_be_made_is_a_wrong_setting(command: str) -> None:
    done = CliRunner().invoke(main, [command], env={"LOOM_HOME": "/proc/no/home"})
    assert done.exit_code == 2
    assert done.stderr.startswith("loom: LOOM_HOME=/proc/no/home cannot be used (")


def test_all_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    wrong = {"LOOM_PORT": "x", "LOOM_MODEL": "scripted-demo+xx", "LOOM_WEBHOOK_SECRET": "x", "OLLAMA_HOST": "a b"}
    done = CliRunner().invoke(main, ["up"], env={"LOOM_HOME": str(tmp_path), **wrong})
    assert done.exit_code == 2
    assert [name for name in wrong if f"loom: {name}" not in done.stderr] == []
    assert list(tmp_path.iterdir()) == []


def test_the_web_says_which_setting_names_no_address_of_this_machine(settings: Settings) -> None:
    env = {"LOOM_HOME": str(settings.home), "LOOM_HOST": "192.0.2.1", "LOOM_API_KEYS": "team=k"}
    done = CliRunner().invoke(main, ["web"], env=env)
    assert (done.exit_code, done.stderr.splitlines()[-1].split("=")[0]) == (2, "loom: LOOM_HOST")


@pytest.mark.parametrize("command", ["up", "web", "doctor"])
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "loom.example"])
@pytest.mark.parametrize("proxies", ["0", "1"])
def test_nothing_serves_other_machines_without_a_key(tmp_path: Path, command: str, host: str, proxies: str) -> None:
    env = {"LOOM_HOME": str(tmp_path), "LOOM_HOST": host, "LOOM_TRUSTED_PROXIES": proxies}
    done = CliRunner().invoke(main, [command], env=env)
    assert done.exit_code == (1 if command == "doctor" else 2)
    assert f"LOOM_HOST={host!r} without LOOM_API_KEYS" in done.output


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.1", "::1", "localhost"])
def test_this_machine_may_be_served_without_a_key(tmp_path: Path, host: str) -> None:
    done = CliRunner().invoke(main, ["doctor"], env={"LOOM_HOME": str(tmp_path), "LOOM_HOST": host})
    assert "without LOOM_API_KEYS" not in done.output


def other_tables(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE recipes (name)")


@pytest.mark.parametrize("command", ["web", "worker", "beat", "prepare"])
@pytest.mark.parametrize(
    "make", [other_tables, Path.mkdir, lambda file: file.write_bytes(b"x" * 5000), lambda file: os.mkfifo(file)]
)
def test_nothing_starts_on_a_file_that_is_no_database_of_looms(
    tmp_path: Path, command: str, make: Callable[[Path], object]
) -> None:
    file = tmp_path / "loom.db"
    make(file)
    before = file.read_bytes() if file.is_file() else b""
    done = CliRunner().invoke(main, [command], env={"LOOM_HOME": str(tmp_path)})
    assert done.exit_code == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"loom: LOOM_DATABASE_URL: {file} ")
    assert (file.read_bytes() if file.is_file() else b"") == before


@pytest.mark.parametrize("command", ["web", "worker", "beat"])
def test_nothing_starts_before_the_database_is_made(tmp_path: Path, command: str) -> None:
    done = CliRunner().invoke(main, [command], env={"LOOM_HOME": str(tmp_path)})
    assert (done.exit_code, list(tmp_path.iterdir())) == (2, [])
    assert "run `loom prepare` first" in done.stderr


def test_up_says_why_it_does_not_start(tmp_path: Path) -> None:
    file = tmp_path / "loom.db"
    file.write_bytes(b"x" * 5000)
    done = CliRunner().invoke(main, ["up"], env={"LOOM_HOME": str(tmp_path)})
    assert done.exit_code == 2
    assert f"loom: LOOM_DATABASE_URL: {file} is no SQLite database" in done.stderr
    assert file.read_bytes() == b"x" * 5000
    assert "Traceback" not in done.stderr
