import os
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from loom_worker.core.errors import BadFile, Conflict, LoomError, Unavailable
from loom_worker.core.settings import Settings
from loom_worker.core.sqlite_driver import sqlite3
from loom_worker.store.database import Database
from loom_worker.store.engines.sqlite_backup import Backup, back_up
from loom_worker.store.engines.sqlite_file import database_path, file_defects
from tests.support.disks import filled, small_disk, spoil
from tests.unit.store.made import counts, submitted


@pytest.fixture
def source(settings: Settings, database: Database) -> Path:
    """A database with three turns that is open, its newest rows in the -wal."""
    for _ in range(3):
        submitted(database)
    return database_path(settings.database_url)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the copies go."""
    made = tmp_path / "copies"
    made.mkdir()
    return made


def turns_in(file: Path) -> int:
    with closing(sqlite3.connect(f"file:{file}?immutable=1", uri=True)) as connection:
        return int(connection.execute("SELECT count(*) FROM turns").fetchone()[0])


def test_the_copy_holds_everything_in_one_file_that_only_its_owner_reads(source: Path, folder: Path) -> None:
    made = back_up(source, folder / "a.db", may_replace=False)
    assert made == Backup(folder / "a.db", (folder / "a.db").stat().st_size, 3)
    assert turns_in(made.file) == 3
    assert [path.name for path in folder.iterdir()] == ["a.db"]
    assert made.file.stat().st_mode & 0o777 == 0o600


def test_a_copy_is_a_database_that_loom_goes_on_with(source: Path, folder: Path) -> None:
    made = back_up(source, folder / "a.db", may_replace=False)
    copy = Database(f"sqlite:///{made.file}")
    assert submitted(copy).seq == 4
    assert counts(copy)["turns"] == 4
    copy.close()
    assert turns_in(made.file) == 4


def test_a_database_that_nobody_has_open_is_copied_too(settings: Settings, folder: Path) -> None:
    assert back_up(database_path(settings.database_url), folder / "a.db", may_replace=False).turns == 0


@pytest.fixture
def written(database: Database) -> Iterator[list[int]]:
    """Turn numbers, as they are committed by a writer that does not pause."""
    stop, numbers = threading.Event(), [submitted(database).seq]

    def write() -> None:
        while not stop.is_set():
            numbers.append(submitted(database, f"s{len(numbers)}").seq)

    thread = threading.Thread(target=write)
    thread.start()
    yield numbers
    stop.set()
    thread.join()


def test_under_a_writer_that_never_pauses_each_copy_is_one_moment(
    settings: Settings, written: list[int], folder: Path
) -> None:
    source = database_path(settings.database_url)
    for number in range(5):
        before = len(written)
        made = back_up(source, folder / f"{number}.db", may_replace=False)
        assert before <= made.turns <= len(written) + 1
        assert file_defects(made.file, is_full=True) == ()


def test_a_file_that_exists_stays_unless_it_may_be_replaced(source: Path, folder: Path) -> None:
    target = folder / "a.db"
    target.write_bytes(b"the last backup")
    with pytest.raises(Conflict, match="--force"):
        back_up(source, target, may_replace=False)
    assert target.read_bytes() == b"the last backup"
    assert back_up(source, target, may_replace=True).turns == turns_in(target) == 3


@pytest.mark.parametrize("name", ["loom.db", "loom.db-wal", "loom.db-shm", "loom.db-journal", "link.db", "hard.db"])
def test_the_database_itself_is_never_the_target(source: Path, name: str) -> None:
    (source.parent / "link.db").symlink_to(source)
    (source.parent / "hard.db").hardlink_to(source)
    with pytest.raises(Conflict, match="the database itself"):
        back_up(source, source.parent / name, may_replace=True)
    assert source.is_file()


def test_what_is_no_file_is_never_replaced(source: Path, folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    for target in (folder, folder / "pipe"):
        with pytest.raises(Conflict, match="not a file"):
            back_up(source, target, may_replace=True)


def test_a_folder_that_is_not_there_is_told(source: Path, folder: Path) -> None:
    with pytest.raises(LoomError, match=r"cannot write .*No such file"):
        back_up(source, folder / "none" / "a.db", may_replace=False)


@pytest.mark.parametrize("name", ["turns", "turns_by_workspace"])
def test_a_damaged_database_makes_no_backup_and_costs_none(
    settings: Settings, database: Database, source: Path, folder: Path, name: str
) -> None:
    target = folder / "a.db"
    back_up(source, target, may_replace=False)
    database.close()
    spoil(source, name)
    before = target.read_bytes()
    with pytest.raises(BadFile, match=r"loom\.db is damaged"):
        back_up(source, target, may_replace=True)
    assert target.read_bytes() == before
    assert [path.name for path in folder.iterdir()] == ["a.db"]


def test_a_disk_without_room_for_the_copy_keeps_the_last_one(source: Path, folder: Path) -> None:
    with small_disk(folder / "disk", size_bytes=4 << 20) as disk:
        back_up(source, disk / "a.db", may_replace=False)
        before = (disk / "a.db").read_bytes()
        with filled(disk), pytest.raises(Unavailable, match=r"no room .*disk is full"):
            back_up(source, disk / "a.db", may_replace=True)
        assert (disk / "a.db").read_bytes() == before
        assert [path.name for path in disk.iterdir()] == ["a.db"]
        assert back_up(source, disk / "a.db", may_replace=True).turns == 3
