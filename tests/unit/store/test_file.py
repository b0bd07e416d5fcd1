import os
from contextlib import closing
from pathlib import Path
from threading import Thread

import pytest

from loom_worker.core.errors import BadFile, Unavailable
from loom_worker.core.settings import Settings
from loom_worker.core.sqlite_driver import codes, sqlite3
from loom_worker.store.database import Database
from loom_worker.store.engines.sqlite_file import (
    CLOSED,
    DAMAGED,
    FAULTY,
    FOREIGN,
    FULL,
    LOCKED,
    MOST_DEFECTS,
    Failure,
    database_path,
    failure_of,
    file_defects,
    into_wal,
    reading,
)
from tests.support.disks import filled, small_disk, spoil
from tests.unit.store.made import submitted


@pytest.fixture
def file(settings: Settings) -> Path:
    """A database with a few turns; nobody has it open."""
    database = Database(settings.database_url)
    for number in range(20):
        submitted(database, f"s{number}")
    database.close()
    return database_path(settings.database_url)


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
        with pytest.raises(Unavailable, match="locked"), reading(file, wait_s=0.05):
            pass
    assert counted(file) == 20


def test_a_sound_file_has_no_flaws(file: Path) -> None:
    assert file_defects(file, is_full=False) == file_defects(file, is_full=True) == ()


@pytest.mark.parametrize("name", ["turns", "turns_by_workspace"])
def test_a_spoiled_page_is_found(file: Path, name: str) -> None:
    spoil(file, name)
    found = file_defects(file, is_full=False)
    assert found
    assert len(found) <= MOST_DEFECTS
    assert all("\n" not in line for line in found)


def test_an_index_that_misses_a_row_is_found_by_the_full_check(file: Path) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("PRAGMA writable_schema=ON")
        connection.execute(
            "UPDATE sqlite_schema SET sql = replace(sql, '(workspace, id)', '(id, workspace)') "
            "WHERE name = 'turns_by_workspace'"
        )
    assert file_defects(file, is_full=False) == ()
    assert file_defects(file, is_full=True)


def test_a_row_without_its_parent_is_found(file: Path) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("DELETE FROM sessions WHERE id IN ('s1', 's2')")
    found = file_defects(file, is_full=False)
    assert len(found) == 2
    assert "of turns belongs to a row of sessions that is not there" in found[0]


def error(code: int) -> sqlite3.Error:
    made = sqlite3.OperationalError("as SQLite says it")
    made.sqlite_errorcode = code
    return made


@pytest.mark.cases(
    ("code", "failure"),
    [
        (codes.SQLITE_FULL, FULL),
        (codes.SQLITE_CORRUPT, DAMAGED),
        (codes.SQLITE_CORRUPT_INDEX, DAMAGED),
        (codes.SQLITE_NOTADB, FOREIGN),
        (codes.SQLITE_CANTOPEN_ISDIR, CLOSED),
        (codes.SQLITE_READONLY_DIRECTORY, CLOSED),
        (codes.SQLITE_BUSY_SNAPSHOT, LOCKED),
        (codes.SQLITE_IOERR_READ, FAULTY),
        (codes.SQLITE_CORRUPT_VTAB, None),
        (codes.SQLITE_CONSTRAINT, None),
        (codes.SQLITE_ERROR, None),
    ],
)
def test_a_code_of_sqlites_is_one_failure(tmp_path: Path, code: int, failure: Failure | None) -> None:
    assert failure_of(error(code), tmp_path / "loom.db") == failure


def test_damage_to_a_full_text_index_alone_stops_no_process(tmp_path: Path) -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute("CREATE VIRTUAL TABLE said USING fts5(text, content = '')")
        connection.executemany("INSERT INTO said (rowid, text) VALUES (?, ?)", [(n, f"w{n} all") for n in range(300)])
        connection.execute("UPDATE said_data SET block = x'00ff00ff01' WHERE id > 10")
        with pytest.raises(sqlite3.DatabaseError) as raised:
            connection.execute("SELECT * FROM said WHERE said MATCH 'all'").fetchall()
    assert failure_of(raised.value, tmp_path / "loom.db") is None


def test_an_error_without_a_code_is_none_of_them(tmp_path: Path) -> None:
    assert failure_of(sqlite3.ProgrammingError("Cannot operate on a closed database."), tmp_path / "loom.db") is None
    assert failure_of(None, tmp_path / "loom.db") is None


def test_an_io_error_on_a_disk_without_room_is_a_full_disk(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", size_bytes=1 << 20) as disk, filled(disk):
        assert failure_of(error(codes.SQLITE_IOERR_SHMSIZE), disk / "loom.db") == FULL
    assert failure_of(error(codes.SQLITE_IOERR_SHMSIZE), tmp_path / "gone" / "loom.db") == FAULTY


def test_no_text_for_clients_names_a_file() -> None:
    texts = [failure.text for failure in (FULL, DAMAGED, FOREIGN, CLOSED, LOCKED, FAULTY)]
    assert [text for text in texts if "/" in text.replace("I/O", "") or ".db" in text] == []


def opened(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)


def test_a_file_that_another_holds_becomes_a_wal_one_once_it_is_let_go(tmp_path: Path) -> None:
    with closing(opened(tmp_path / "a.db")) as holder, closing(opened(tmp_path / "a.db")) as waiter:
        holder.execute("CREATE TABLE t (x)")
        holder.execute("BEGIN EXCLUSIVE")
        thread = Thread(target=into_wal, args=(waiter,))
        thread.start()
        holder.execute("COMMIT")
        thread.join(timeout=60)
        assert waiter.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_file_that_is_never_let_go_is_told_as_locked(tmp_path: Path) -> None:
    with closing(opened(tmp_path / "a.db")) as holder, closing(opened(tmp_path / "a.db")) as waiter:
        holder.execute("CREATE TABLE t (x)")
        holder.execute("BEGIN EXCLUSIVE")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            into_wal(waiter, wait_s=0.05)
