import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from loom_worker.cli.main import main
from loom_worker.core.settings import Settings
from loom_worker.store.database import Database
from tests.support.disks import spoil
from tests.unit.store.made import submitted


@pytest.fixture
def home(settings: Settings, database: Database) -> Path:
    """A home whose database has two turns and is open."""
    for _ in range(2):
        submitted(database)
    return settings.home


def backup(home: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["backup", *arguments], env={"LOOM_HOME": str(home)})


def test_it_tells_what_it_made(home: Path) -> None:
    file = home / "copy.db"
    done = backup(home, str(file))
    assert done.exit_code == 0
    assert done.stdout.startswith(f"{file}: 2 turns, {file.stat().st_size / 1e6:.1f} MB, in ")
    assert done.stderr == ""


def test_a_program_gets_the_same_as_json(home: Path) -> None:
    file = home / "copy.db"
    report = json.loads(backup(home, str(file), "--json").stdout)
    assert report.pop("seconds") >= 0
    assert report == {"file": str(file), "size_bytes": file.stat().st_size, "turns": 2}


def test_a_relative_name_is_meant_from_where_the_command_runs(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert backup(home, "copy.db").exit_code == 0
    assert (elsewhere / "copy.db").is_file()


def test_an_existing_file_is_replaced_only_by_force(home: Path) -> None:
    file = home / "copy.db"
    file.write_text("the last one")
    refused = backup(home, str(file))
    assert (refused.exit_code, file.read_text()) == (1, "the last one")
    assert refused.stderr == f"loom: {file} exists; name another file, or replace it with --force\n"
    assert backup(home, "--force", str(file)).exit_code == 0


def test_without_a_database_there_is_nothing_to_back_up(tmp_path: Path) -> None:
    done = backup(tmp_path, str(tmp_path / "copy.db"))
    assert done.exit_code == 1
    assert "nothing to back up" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_database_exits_2_and_a_damaged_one_1(home: Path, database: Database) -> None:
    database.close()
    spoil(home / "loom.db", "turns")
    assert backup(home, str(home / "copy.db")).exit_code == 1
    (home / "loom.db").write_bytes(b"something else" * 100)
    done = backup(home, str(home / "copy.db"))
    assert done.exit_code == 2
    assert done.stderr.startswith("loom: LOOM_DATABASE_URL: ")
    assert not (home / "copy.db").exists()
