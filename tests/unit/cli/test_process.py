import logging
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from loom_worker.cli.main import main


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
    ],
)
def test_a_value_that_no_turn_could_use_is_refused_at_the_start(tmp_path: Path, name: str, value: str) -> None:
    home = tmp_path / "home"
    done = CliRunner().invoke(main, ["prepare"], env={"LOOM_HOME": str(home), name: value})
    assert done.exit_code == 2
    assert name in done.output
    assert "hidden" not in done.output
    assert not home.exists()


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
    assert done.exit_code == 1
    assert f"LOOM_DATABASE_URL: {file} is no SQLite database" in done.stderr
    assert file.read_bytes() == b"x" * 5000
    assert "Traceback" not in done.stderr
