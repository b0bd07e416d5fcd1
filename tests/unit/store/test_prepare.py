import hashlib
import os
from collections.abc import Callable
from contextlib import closing, nullcontext
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_engine
from sqlalchemy.exc import OperationalError

from loom_worker.cli.checks import database
from loom_worker.core.errors import BadSettings, Unavailable
from loom_worker.core.settings import Settings, from_env
from loom_worker.core.sqlite_driver import sqlite3
from loom_worker.store import schema
from loom_worker.store.database import Database, engine_of
from loom_worker.store.prepare import check, prepare, version_of
from tests.support.disks import small_disk
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
    engine = create_engine(settings.database_url, module=sqlite3)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": "loom_version"})
        changes = compare_metadata(context, schema.metadata)
        # FTS5 keeps its index in tables of its own, which are none of the code's.
        index = [change[1].name for change in changes if change[0] == "remove_table"]
        assert [change for change in changes if change[0] != "remove_table"] == []
        assert all(name.startswith("messages_fts5") for name in index)
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
    execute(settings, "PRAGMA user_version = 9999")
    before = (settings.home / "loom.db").read_bytes()
    with pytest.raises(BadSettings, match=r"9999.*newer"):
        prepare(settings)
    assert (settings.home / "loom.db").read_bytes() == before


@pytest.mark.parametrize("content", [b"not a database, but long enough to be taken for one. " * 40, b"\0" * 4096])
def test_a_file_that_is_no_database_is_refused_and_left_untouched(bare: Settings, content: bytes) -> None:
    path = bare.home / "loom.db"
    path.write_bytes(content)
    digest, mode = hashlib.sha256(content).digest(), path.stat().st_mode
    with pytest.raises(BadSettings, match="is no SQLite database"):
        prepare(bare)
    assert hashlib.sha256(path.read_bytes()).digest() == digest
    assert (path.stat().st_mode, [file.name for file in bare.home.iterdir()]) == (mode, ["loom.db"])


def test_an_empty_file_becomes_a_database(bare: Settings) -> None:
    (bare.home / "loom.db").touch()
    assert prepare(bare)


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match="no folder"):
        prepare(from_env({"LOOM_HOME": str(tmp_path / "none")}))


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2 // 4096 * 4096)


def folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def garbled_schema(file: Path) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("PRAGMA writable_schema=ON")
        connection.execute("UPDATE sqlite_schema SET sql = 'CREATE TABLE turns (' WHERE name = 'turns'")


def other_version_table(file: Path) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("ALTER TABLE loom_version RENAME COLUMN version_num TO number")


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (cut, "is damaged"),
        (garbled_schema, r"is damaged .*turns"),
        (folder, "is a folder"),
        (lambda file: file.write_bytes(b"PK not a database" * 99), "is no SQLite database"),
        (lambda file: file.write_bytes(file.read_bytes()[:100]), "is damaged"),
        (lambda file: (file.unlink(), os.mkfifo(file)), "is not a file"),
        (lambda file: (file.unlink(), file.symlink_to("nowhere")), "is not a file"),
        (other_version_table, "version_num"),
    ],
)
def test_what_cannot_be_used_is_refused_with_a_way_out_and_not_a_byte_of_it_changes(
    settings: Settings, spoil: Callable[[Path], object], told: str
) -> None:
    file = settings.home / "loom.db"
    spoil(file)
    before = (file.read_bytes() if file.is_file() else b"", file.lstat().st_mode)
    for attempt in (prepare, check, lambda one: version_of(one.database_url)):
        with pytest.raises(BadSettings, match=rf"^LOOM_DATABASE_URL: .*loom\.db.*{told}") as error:
            attempt(settings)
        assert len(str(error.value).splitlines()) == 1
    assert (file.read_bytes() if file.is_file() else b"", file.lstat().st_mode) == before


def test_tables_of_others_in_a_wal_that_was_left_are_refused_and_stay_there(bare: Settings) -> None:
    file, wal = bare.home / "loom.db", bare.home / "loom.db-wal"
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE recipes (name)")
        left = file.read_bytes(), wal.read_bytes()
    file.write_bytes(left[0])
    wal.write_bytes(left[1])
    with pytest.raises(BadSettings, match="recipes"):
        prepare(bare)
    assert (file.read_bytes(), wal.read_bytes()) == left


@pytest.mark.skipif(os.geteuid() == 0, reason="no permission stops root: run as another user")
@pytest.mark.parametrize(("mode", "told"), [(0o000, "may not be read"), (0o400, "may not be written")])
def test_a_file_that_this_user_may_not_use_is_told_as_that(settings: Settings, mode: int, told: str) -> None:
    (settings.home / "loom.db").chmod(mode)
    with pytest.raises(BadSettings, match=told):
        prepare(settings)


def test_a_process_starts_on_a_prepared_database_only(bare: Settings) -> None:
    with pytest.raises(BadSettings, match=r"not made yet; run `loom prepare`"):
        check(bare)
    assert list(bare.home.iterdir()) == []
    prepare(bare)
    check(bare)
    execute(bare, "UPDATE loom_version SET version_num = '0000'")
    with pytest.raises(BadSettings, match=r"schema 0000.*`loom prepare`"):
        check(bare)
    execute(bare, "UPDATE loom_version SET version_num = '9999'")
    execute(bare, "PRAGMA user_version = 9999")
    with pytest.raises(BadSettings, match="newer"):
        check(bare)


@pytest.mark.parametrize(("usable_from", "is_used"), [(schema.VERSION, True), ("9998", False)])
def test_a_newer_database_is_used_if_the_code_that_made_it_says_so(
    bare: Settings, usable_from: str, *, is_used: bool
) -> None:
    prepare(bare)
    with closing(engine_of(bare.database_url)) as engine:
        assert engine.usable_from() == schema.USABLE_FROM
    execute(bare, "UPDATE loom_version SET version_num = '9999'")
    execute(bare, f"PRAGMA user_version = {usable_from}")
    for attempt in (prepare, check):
        with nullcontext() if is_used else pytest.raises(BadSettings, match="schema 9999, written by a newer Loom"):
            assert not attempt(bare)
    told = database(bare)
    assert (told.is_ok, "until this host is updated" in told.warning) == (is_used, is_used)
    assert version_of(bare.database_url) == "9999"


def test_a_disk_too_small_for_the_database_is_told_as_full(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", size_bytes=64 << 10) as disk:
        settings = from_env({"LOOM_HOME": str(tmp_path), "LOOM_DATABASE_URL": f"sqlite:///{disk}/loom.db"})
        with pytest.raises(Unavailable, match="disk is full"):
            prepare(settings)


def test_a_migration_that_fails_half_way_leaves_nothing(bare: Settings) -> None:
    execute(bare, "CREATE VIEW usage_by_workspace AS SELECT 1")  # the name of the last index
    with pytest.raises(OperationalError, match="usage_by_workspace"):
        prepare(bare)
    assert version_of(bare.database_url) is None
    execute(bare, "DROP VIEW usage_by_workspace")
    assert prepare(bare)
