import hashlib
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_engine
from sqlalchemy.exc import OperationalError

from loom_worker.errors import BadSettings
from loom_worker.settings import Settings, from_env
from loom_worker.store import schema
from loom_worker.store.database import Database
from loom_worker.store.prepare import prepare, version_of
from tests.unit.store.made import submitted


@pytest.fixture
def bare(tmp_path: Path) -> Settings:
    """Settings of a home without a database."""
    return from_env({"LOOM_HOME": str(tmp_path)})


def execute(settings: Settings, *statements: str) -> None:
    with closing(sqlite3.connect(settings.home / "loom.db")) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def test_a_database_is_made_once(bare: Settings) -> None:
    assert version_of(bare.database_url) is None
    assert [prepare(bare), prepare(bare)] == [True, False]
    assert version_of(bare.database_url) == schema.VERSION


def test_preparing_again_leaves_the_rows(settings: Settings) -> None:
    database = Database(settings.database_url)
    turn = submitted(database)
    assert not prepare(settings)
    assert submitted(database).seq == turn.seq + 1
    database.close()


def test_the_migrations_make_the_schema_that_the_code_has(settings: Settings) -> None:
    engine = create_engine(settings.database_url)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": "loom_version"})
        assert compare_metadata(context, schema.metadata) == []
    engine.dispose()


def test_a_prepared_database_is_in_wal_mode_for_all_who_open_it(settings: Settings) -> None:
    with closing(sqlite3.connect(settings.home / "loom.db")) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_tables_of_others_are_refused_and_left_alone(bare: Settings) -> None:
    execute(bare, "CREATE TABLE recipes (name)", "INSERT INTO recipes VALUES ('soup')")
    before = (bare.home / "loom.db").read_bytes()
    with pytest.raises(BadSettings, match="recipes"):
        prepare(bare)
    assert (bare.home / "loom.db").read_bytes() == before


def test_a_database_of_a_newer_loom_is_refused_and_left_alone(settings: Settings) -> None:
    execute(settings, "UPDATE loom_version SET version_num = '9999'")
    before = (settings.home / "loom.db").read_bytes()
    with pytest.raises(BadSettings, match=r"9999.*newer"):
        prepare(settings)
    assert (settings.home / "loom.db").read_bytes() == before


@pytest.mark.parametrize("content", [b"not a database, but long enough to be taken for one. " * 40, b"\0" * 4096])
def test_a_file_that_is_no_database_is_refused_and_left_untouched(bare: Settings, content: bytes) -> None:
    path = bare.home / "loom.db"
    path.write_bytes(content)
    digest, mode = hashlib.sha256(content).digest(), path.stat().st_mode
    with pytest.raises(BadSettings, match="cannot be read as a database"):
        prepare(bare)
    assert hashlib.sha256(path.read_bytes()).digest() == digest
    assert (path.stat().st_mode, [file.name for file in bare.home.iterdir()]) == (mode, ["loom.db"])


def test_an_empty_file_becomes_a_database(bare: Settings) -> None:
    (bare.home / "loom.db").touch()
    assert prepare(bare)


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match="unable to open"):
        prepare(from_env({"LOOM_HOME": str(tmp_path / "none")}))


def test_processes_that_start_together_make_one_database_between_them(bare: Settings) -> None:
    code = (
        "import sys, alembic.command, alembic.config\n"
        "from loom_worker.settings import from_env\n"
        "from loom_worker.store.prepare import prepare\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "prepare(from_env({'LOOM_HOME': sys.argv[1]}))\n"
    )
    command = [sys.executable, "-c", code, str(bare.home)]
    pipe = subprocess.PIPE
    processes = [subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) for _ in range(3)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    assert [process.communicate(timeout=60)[1] for process in processes] == ["", "", ""]
    assert version_of(bare.database_url) == schema.VERSION


def test_a_migration_that_fails_half_way_leaves_nothing(bare: Settings) -> None:
    execute(bare, "CREATE VIEW usage_by_workspace AS SELECT 1")  # the name of the last index
    with pytest.raises(OperationalError, match="usage_by_workspace"):
        prepare(bare)
    assert version_of(bare.database_url) is None
    execute(bare, "DROP VIEW usage_by_workspace")
    assert prepare(bare)
