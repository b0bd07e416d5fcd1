import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from loom_worker.cli.main import main
from loom_worker.core.settings import Settings
from loom_worker.core.sqlite_driver import sqlite3
from tests.support.log_lines import logging_as_it_was


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """Commands that run processes set logging up for the whole process; here that is the tests' own."""
    with logging_as_it_was():
        yield


@pytest.mark.cases(
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
@pytest.mark.cases("command", ["prepare", "web", "worker", "beat"])
def test_a_value_that_no_turn_could_use_is_refused_at_the_start(
    tmp_path: Path, command: str, name: str, value: str
) -> None:
    home = tmp_path / "home"
    done = CliRunner().invoke(main, [command], env={"LOOM_HOME": str(home), name: value})
    assert done.exit_code == 2
    assert [line for line in done.stderr.splitlines() if not line.startswith(f"loom: {name}")] == []
    assert "hidden" not in done.output
    assert not home.exists()


@pytest.mark.parametrize("command", ["web", "worker", "beat"])
def test_a_process_that_no_redis_will_come_for_names_the_setting(tmp_path: Path, command: str) -> None:
    env = {"LOOM_HOME": str(tmp_path), "LOOM_BACKEND_URL": f"sqlite:///{tmp_path}/loom.db"}
    assert CliRunner().invoke(main, ["prepare"], env=env).exit_code == 0
    done = CliRunner().invoke(main, [command], env=env)
    assert (done.exit_code, "LOOM_REDIS_URL is not set" in done.stderr) == (2, True)


def test_prepare_says_what_it_did(tmp_path: Path) -> None:
    told = [CliRunner().invoke(main, ["prepare"], env={"LOOM_HOME": str(tmp_path)}).output for _ in range(2)]
    database, shop = f"{tmp_path / 'loom.db'}: ", f"{tmp_path / 'shop.db'}: the sample shop"
    assert [each.splitlines()[0].removeprefix(database).split()[0] for each in told] == ["made,", "up"]
    assert all(each.splitlines()[1].startswith(shop) for each in told)


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


@pytest.mark.cases("command", ["up", "web", "doctor"])
@pytest.mark.cases("host", ["0.0.0.0", "::", "192.0.2.1", "loom.example"])
@pytest.mark.cases("proxies", ["0", "1"])
def test_nothing_serves_other_machines_without_a_key(tmp_path: Path, command: str, host: str, proxies: str) -> None:
    env = {"LOOM_HOME": str(tmp_path), "LOOM_HOST": host, "LOOM_TRUSTED_PROXIES": proxies}
    done = CliRunner().invoke(main, [command], env=env)
    assert done.exit_code == (1 if command == "doctor" else 2)
    assert f"LOOM_HOST={host!r} needs an API key" in done.output
    assert "set LOOM_API_KEYS=workspace=key, make a key with `loom keys create`" in done.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.1", "::1", "localhost"])
def test_this_machine_may_be_served_without_a_key(tmp_path: Path, host: str) -> None:
    done = CliRunner().invoke(main, ["doctor"], env={"LOOM_HOME": str(tmp_path), "LOOM_HOST": host})
    assert "needs an API key" not in done.output


@pytest.mark.parametrize("command", ["up", "web"])
def test_a_key_in_the_database_is_enough_to_serve_other_machines(settings: Settings, command: str) -> None:
    env = {"LOOM_HOME": str(settings.home), "LOOM_HOST": "192.0.2.1"}
    made = CliRunner().invoke(main, ["keys", "create", "first", "--json"], env=env)
    done = CliRunner().invoke(main, [command], env=env)
    assert (done.exit_code, "needs an API key" in done.output) == (2, False)
    assert "LOOM_HOST='192.0.2.1': cannot be listened on" in done.stderr.splitlines()[-1]
    CliRunner().invoke(main, ["keys", "revoke", json.loads(made.stdout)["id"]], env=env)
    assert "needs an API key" in CliRunner().invoke(main, [command], env=env).output


@pytest.mark.parametrize("command", ["up", "web", "doctor"])
def test_keys_that_cannot_be_read_are_a_wrong_setting(tmp_path: Path, command: str) -> None:
    (tmp_path / "loom.db").write_bytes(b"x" * 5000)
    done = CliRunner().invoke(main, [command], env={"LOOM_HOME": str(tmp_path), "LOOM_HOST": "0.0.0.0"})
    assert done.exit_code == (1 if command == "doctor" else 2)
    assert "the keys in the database cannot be read" in done.output
    assert [file.name for file in tmp_path.iterdir()] == ["loom.db"]


def test_looking_for_keys_leaves_the_supervisor_small(settings: Settings) -> None:
    code = "import sys; from loom_worker.cli import setting_checks; from loom_worker.core.settings import from_env\n"
    code += "try: from_env(checks=(*setting_checks.START, setting_checks.serving))\n"
    code += "except Exception as error: print(type(error).__name__, 'sqlalchemy' in sys.modules)"
    env = {"LOOM_HOME": str(settings.home), "LOOM_HOST": "0.0.0.0"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["BadSettings", "False"]


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
