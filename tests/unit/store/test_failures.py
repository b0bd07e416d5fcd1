from contextlib import closing
from pathlib import Path

import pytest

from loom_worker.core.sqlite_driver import codes, sqlite3
from loom_worker.store.failures import CLOSED, DAMAGED, FAULTY, FOREIGN, FULL, LOCKED, Failure, failure_of
from tests.support.disks import filled, small_disk


def error(code: int) -> sqlite3.Error:
    made = sqlite3.OperationalError("as SQLite says it")
    made.sqlite_errorcode = code
    return made


@pytest.mark.parametrize(
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
