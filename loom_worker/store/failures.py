"""What SQLite cannot do, in our words: the same for clients, for the log and for who starts Loom."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from loom_worker.core.sqlite_driver import codes

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
    codes.SQLITE_FULL: FULL,
    codes.SQLITE_CORRUPT: DAMAGED,
    codes.SQLITE_NOTADB: FOREIGN,
    codes.SQLITE_CANTOPEN: CLOSED,
    codes.SQLITE_PERM: CLOSED,
    codes.SQLITE_READONLY: CLOSED,
    codes.SQLITE_BUSY: LOCKED,
    codes.SQLITE_LOCKED: LOCKED,
    codes.SQLITE_IOERR: FAULTY,
}


_BY_TEXT = {"database or disk is full": codes.SQLITE_FULL, "disk I/O error": codes.SQLITE_IOERR}
"""pysqlite3 gives the errors of a backup no code."""


def failure_of(error: BaseException | None, file: Path) -> Failure | None:
    """The failure behind an exception of the sqlite3 module; None if it is one of the statement, such as a typo."""
    if _is_of_one_index(error):
        return None
    code: int = getattr(error, "sqlite_errorcode", None) or _BY_TEXT.get(str(error), 0)
    failure = _BY_CODE.get(code & 0xFF)
    return FULL if failure is FAULTY and _is_full(file) else failure


def _is_of_one_index(error: BaseException | None) -> bool:
    """True of damage to a full-text index alone, which can be built anew. pysqlite3 knows no extended codes."""
    return getattr(error, "sqlite_errorcode", 0) == codes.SQLITE_CORRUPT_VTAB or str(error).startswith("fts5: ")


def _is_full(file: Path) -> bool:
    try:
        return shutil.disk_usage(file.parent).free < NOTHING_FREE_BYTES
    except OSError:
        return False
