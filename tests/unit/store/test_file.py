import os
from contextlib import closing
from pathlib import Path

import pytest

from loom_worker.core.errors import BadFile, Unavailable
from loom_worker.core.settings import Settings
from loom_worker.core.sqlite_driver import sqlite3
from loom_worker.store.database import Database
from loom_worker.store.file import MOST_FLAWS, flaws, path_of, reading
from tests.support.disks import spoil
from tests.unit.store.made import submitted


@pytest.fixture
def file(settings: Settings) -> Path:
    """A database with a few turns; nobody has it open."""
    database = Database(settings.database_url)
    for number in range(20):
        submitted(database, f"s{number}")
    database.close()
    return path_of(settings.database_url)


def counted(file: Path) -> int:
    with reading(file) as connection:
        return int(connection.execute("SELECT count(*) FROM turns").fetchone()[0])


def dying(file: Path, *statements: str) -> None:
    """A process that writes these and dies without a word to SQLite."""
    pid = os.fork()
    if pid == 0:
        connection = sqlite3.connect(file, isolation_level=None)
        for statement in statements:
            connection.execute(statement)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0


def test_what_stands_only_in_the_wal_is_read_and_stays_there(file: Path) -> None:
    dying(file, "INSERT INTO turns SELECT * FROM turns WHERE 0", "UPDATE turns SET input = 'only in the wal'")
    wal = file.with_name("loom.db-wal")
    before = file.read_bytes(), wal.read_bytes()
    assert before[1]
    with reading(file) as connection:
        assert connection.execute("SELECT DISTINCT input FROM turns").fetchall() == [("only in the wal",)]
    assert (file.read_bytes(), wal.read_bytes()) == before


def test_nothing_can_be_written_through_it(file: Path) -> None:
    with pytest.raises(BadFile, match="opened"), reading(file) as connection:
        connection.execute("DELETE FROM turns")
    assert counted(file) == 20


def test_a_transaction_that_a_death_cut_is_undone_and_the_rest_read(file: Path) -> None:
    dying(
        file,
        "PRAGMA journal_mode=DELETE",
        "PRAGMA cache_size=1",
        "BEGIN IMMEDIATE",
        "UPDATE turns SET input = hex(zeroblob(4000))",
        "DELETE FROM turns",
    )
    assert file.with_name("loom.db-journal").stat().st_size > 0
    assert counted(file) == 20


def test_a_name_with_signs_of_urls_is_a_name(tmp_path: Path, file: Path) -> None:
    odd = tmp_path / "a?mode=rw&b#c%41 é.db"
    file.rename(odd)
    assert counted(odd) == 20


def test_a_lock_that_is_not_let_go_is_no_flaw_of_the_file(file: Path) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode=EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(Unavailable, match="locked"), reading(file, patience_s=0.05):
            pass
    assert counted(file) == 20


def test_a_sound_file_has_no_flaws(file: Path) -> None:
    assert flaws(file, is_full=False) == flaws(file, is_full=True) == ()


@pytest.mark.parametrize("name", ["turns", "turns_by_workspace"])
def test_a_spoiled_page_is_found(file: Path, name: str) -> None:
    spoil(file, name)
    found = flaws(file, is_full=False)
    assert found
    assert len(found) <= MOST_FLAWS
    assert all("\n" not in line for line in found)


def test_an_index_that_misses_a_row_is_found_by_the_full_check(file: Path) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("PRAGMA writable_schema=ON")
        connection.execute(
            "UPDATE sqlite_schema SET sql = replace(sql, '(workspace, id)', '(id, workspace)') "
            "WHERE name = 'turns_by_workspace'"
        )
    assert flaws(file, is_full=False) == ()
    assert flaws(file, is_full=True)


def test_a_row_without_its_parent_is_found(file: Path) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("DELETE FROM sessions WHERE id IN ('s1', 's2')")
    found = flaws(file, is_full=False)
    assert len(found) == 2
    assert "of turns belongs to a row of sessions that is not there" in found[0]
