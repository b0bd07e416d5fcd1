"""What SQLite cannot do, in our words: the same for clients, for the log and for who starts Loom."""

import shutil
import sqlite3
from dataclasses import dataclass
from pathlib import Path

NOTHING_FREE_BYTES = 64 * 1024
"""With less free space an I/O error is a full disk: SQLite grows its -shm file by 32 kB, and reports that it could not
under another name."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure that SQLite has a code for."""

    text: str
    """A clause with the database as its subject; it names no file, so that a client may read it."""
    fix: str
    """What who runs Loom can do."""
    slug: str | None = None
    """Of the problem that clients see."""
    is_passing: bool = False
    """True if the same file may be as good as before once the fix is done, or by waiting."""


FULL = Failure("has no room: the disk is full", "make room on its disk", "storage-full", is_passing=True)
DAMAGED = Failure(
    "is damaged",
    "keep the file, run `loom doctor`, and restore a backup (docs/operations.md says how)",
    "storage-damaged",
)
FOREIGN = Failure(
    "is no SQLite database",
    "set LOOM_DATABASE_URL to another file, or restore a backup (docs/operations.md says how)",
    "storage-damaged",
)
CLOSED = Failure("cannot be opened", "let this user read and write the file, its folder, and -wal and -shm beside it")
LOCKED = Failure("is locked by another program", "end what holds it", is_passing=True)
FAULTY = Failure("cannot be read or written: disk I/O error", "look at the disk (`dmesg`)", is_passing=True)

_BY_CODE = {
    sqlite3.SQLITE_FULL: FULL,
    sqlite3.SQLITE_CORRUPT: DAMAGED,
    sqlite3.SQLITE_NOTADB: FOREIGN,
    sqlite3.SQLITE_CANTOPEN: CLOSED,
    sqlite3.SQLITE_PERM: CLOSED,
    sqlite3.SQLITE_READONLY: CLOSED,
    sqlite3.SQLITE_BUSY: LOCKED,
    sqlite3.SQLITE_LOCKED: LOCKED,
    sqlite3.SQLITE_IOERR: FAULTY,
}


def failure_of(error: BaseException | None, file: Path) -> Failure | None:
    """The failure behind an exception of the sqlite3 module; None if it is one of the statement, such as a typo."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    if code == sqlite3.SQLITE_CORRUPT_VTAB:  # an index of one virtual table, which can be built anew
        return None
    failure = _BY_CODE.get(code & 0xFF)
    return FULL if failure is FAULTY and _is_full(file) else failure


def _is_full(file: Path) -> bool:
    try:
        return shutil.disk_usage(file.parent).free < NOTHING_FREE_BYTES
    except OSError:
        return False
