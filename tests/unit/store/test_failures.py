import sqlite3
from pathlib import Path

import pytest

from loom_worker.store.failures import CLOSED, DAMAGED, FAULTY, FOREIGN, FULL, LOCKED, Failure, failure_of
from tests.support.disks import filled, small_disk


def error(code: int) -> sqlite3.Error:
    made = sqlite3.OperationalError("as SQLite says it")
    made.sqlite_errorcode = code
    return made


@pytest.mark.parametrize(
    ("code", "failure"),
    [
        (sqlite3.SQLITE_FULL, FULL),
        (sqlite3.SQLITE_CORRUPT, DAMAGED),
        (sqlite3.SQLITE_CORRUPT_INDEX, DAMAGED),
        (sqlite3.SQLITE_NOTADB, FOREIGN),
        (sqlite3.SQLITE_CANTOPEN_ISDIR, CLOSED),
        (sqlite3.SQLITE_READONLY_DIRECTORY, CLOSED),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, LOCKED),
        (sqlite3.SQLITE_IOERR_READ, FAULTY),
        (sqlite3.SQLITE_CORRUPT_VTAB, None),
        (sqlite3.SQLITE_CONSTRAINT, None),
        (sqlite3.SQLITE_ERROR, None),
    ],
)
def test_a_code_of_sqlites_is_one_failure(tmp_path: Path, code: int, failure: Failure | None) -> None:
    assert failure_of(error(code), tmp_path / "loom.db") == failure


def test_an_error_without_a_code_is_none_of_them(tmp_path: Path) -> None:
    assert failure_of(sqlite3.ProgrammingError("Cannot operate on a closed database."), tmp_path / "loom.db") is None
    assert failure_of(None, tmp_path / "loom.db") is None


def test_an_io_error_on_a_disk_without_room_is_a_full_disk(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", size_bytes=1 << 20) as disk, filled(disk):
        assert failure_of(error(sqlite3.SQLITE_IOERR_SHMSIZE), disk / "loom.db") == FULL
    assert failure_of(error(sqlite3.SQLITE_IOERR_SHMSIZE), tmp_path / "gone" / "loom.db") == FAULTY


def test_no_text_for_clients_names_a_file() -> None:
    texts = [failure.text for failure in (FULL, DAMAGED, FOREIGN, CLOSED, LOCKED, FAULTY)]
    assert [text for text in texts if "/" in text.replace("I/O", "") or ".db" in text] == []
