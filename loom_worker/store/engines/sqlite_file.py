"""The database as a file: where it is, what can be wrong with it, how it is read without changing it, and checked."""

import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote, unquote

from loom_worker.core.errors import BadFile, LoomError, Unavailable
from loom_worker.core.sqlite_driver import codes, sqlite3
from loom_worker.store.engines.engine import HAS_MOVED, WHERE_TO, Failure

BESIDE = ("-wal", "-shm", "-journal")
"""What SQLite appends to the name of a database for the files that belong to it."""
LOCK_WAIT_S = 10.0
LOCK_RETRY_S = 0.01
MOST_DEFECTS = 5
"""Most defects that a check reports; a damaged file has thousands."""
NOTHING_FREE_BYTES = 256 * 1024
"""With less free space a disk is full, and an I/O error means that: SQLite grows its -shm file by 32 kB, and reports
that it could not as an I/O error."""

_HAS_TABLE = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'api_keys'"
_USABLE = "SELECT count(*) FROM api_keys WHERE revoked_ms IS NULL AND (expires_ms IS NULL OR expires_ms > ?)"


FULL = Failure("has no room: the disk is full", "make room on its disk", "storage-full", is_temporary=True)
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
CLOSED = Failure("cannot be opened", "let this user read and write the file, its folder, and its -wal and -shm files")
LOCKED = Failure("is locked by another program", "end what holds it", is_temporary=True)
FAULTY = Failure("cannot be read or written: disk I/O error", "look at the disk (`dmesg`)", is_temporary=True)
MOVED = Failure(HAS_MOVED, WHERE_TO)

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
"""pysqlite3 raises the errors of a backup without a code."""


def database_path(url: str) -> Path:
    """The file behind LOOM_DATABASE_URL, as SQLAlchemy reads it; `loom up` does so without SQLAlchemy."""
    return Path(unquote(url.removeprefix("sqlite:///").partition("?")[0]))


def failure_of(error: BaseException | None, file: Path) -> Failure | None:
    """The failure behind an exception of the sqlite3 module; None if the statement is at fault, as with a typo."""
    # A full-text index that alone is damaged can be rebuilt. pysqlite3 knows no extended codes.
    if getattr(error, "sqlite_errorcode", 0) == codes.SQLITE_CORRUPT_VTAB or str(error).startswith("fts5: "):
        return None
    if str(error) == HAS_MOVED:
        return MOVED
    code: int = getattr(error, "sqlite_errorcode", None) or _BY_TEXT.get(str(error), 0)
    failure = _BY_CODE.get(code & 0xFF)
    return FULL if failure is FAULTY and full_disks(file.parent) else failure


def full_disks(*folders: Path) -> tuple[str, ...]:
    """Which of the folders have no room on their disk, and what to do; one that cannot be looked at is passed over."""
    found = []
    for folder in dict.fromkeys(folders):
        with suppress(OSError):
            disk = os.statvfs(folder)
            if disk.f_bavail * disk.f_frsize < NOTHING_FREE_BYTES or (disk.f_files and not disk.f_favail):
                found.append(f"{folder} {FULL.text}; {FULL.fix} (`df -h {folder}`, `df -i {folder}`)")
    return tuple(found)


@contextmanager
def reading(file: Path, *, wait_s: float = LOCK_WAIT_S) -> Iterator[sqlite3.Connection]:
    """Open a connection that changes nothing in the file, not even when it is closed.

    An ordinary connection writes the -wal back into the file if it is the last one to be closed.

    Args:
        wait_s: longest wait for a lock of another process.

    Raises:
        BadFile: the file cannot be read as a database; the text says what to do.
        Unavailable: it cannot be read now.
    """
    if not file.is_file():
        raise BadFile(f"{file} is {'a folder' if file.is_dir() else 'not a file'}; name the file of a database")
    if not os.access(file, os.R_OK):
        raise BadFile(f"{file} may not be read by this user (uid {os.geteuid()}); change its owner or mode")
    try:
        with closing(_opened(file, wait_s)) as connection:
            yield connection
    except sqlite3.Error as error:
        raise file_error(error, file) from error


def into_wal(connection: sqlite3.Connection, *, wait_s: float = LOCK_WAIT_S) -> None:
    """Switch the file to a write-ahead log, if it has none yet.

    SQLite's own timeout does not apply to that: two that switch at once would wait for each other, so one is refused
    (of four processes that opened 400 new files together, one in 18).

    Raises:
        sqlite3.OperationalError: others held the file for longer than wait_s, or it cannot be written.
    """
    deadline_s = time.monotonic() + wait_s
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != codes.SQLITE_BUSY or time.monotonic() > deadline_s:
                raise
            time.sleep(LOCK_RETRY_S)


def file_error(error: sqlite3.Error, file: Path) -> LoomError:
    """The error as an operator reads it: it names the file and says what to do."""
    failure = failure_of(error, file)
    if failure is None:
        return BadFile(f"{file} cannot be read as a database of Loom's: {error}")
    kind = Unavailable if failure.is_temporary else BadFile
    return kind(f"{file} {failure.text} ({error}); {failure.fix}")


def file_defects(file: Path, *, is_full: bool) -> tuple[str, ...]:
    """What is wrong inside the file, at most MOST_DEFECTS lines; none for a sound file.

    With 100,000 messages (200 MB) quick_check took 0.23 s, integrity_check 0.65 s and foreign_key_check 0.1 s.

    Args:
        is_full: also compare every index with its table.

    Raises:
        BadFile, Unavailable: as ``reading``.
    """
    with reading(file) as connection:
        if found := damage(connection, is_full=is_full):
            return found
        dangling = connection.execute("PRAGMA foreign_key_check").fetchmany(MOST_DEFECTS)
    return tuple(
        f"row {rowid} of {table} belongs to a row of {parent} that is not there" for table, rowid, parent, _ in dangling
    )


def damage(connection: sqlite3.Connection, *, is_full: bool) -> tuple[str, ...]:
    """What SQLite's own check finds, at most MOST_DEFECTS lines."""
    pragma = "integrity_check" if is_full else "quick_check"
    try:
        lines = [str(row[0]) for row in connection.execute(f"PRAGMA {pragma}({MOST_DEFECTS})")]
    except sqlite3.DatabaseError as error:  # so damaged that the check itself cannot go on
        return (str(error),)
    return () if lines == ["ok"] else tuple(" ".join(line.split()) for line in lines[:MOST_DEFECTS])


def _opened(file: Path, wait_s: float) -> sqlite3.Connection:
    try:
        return _connected(file, "ro", wait_s)
    except sqlite3.OperationalError as error:
        # A process died in the middle of a transaction while the file was not in WAL mode, as after a backup was put in
        # place. Before such a file can be read, that transaction must be undone.
        has_journal = file.with_name(f"{file.name}-journal").exists()
        if error.sqlite_errorcode & 0xFF != codes.SQLITE_READONLY or not has_journal:
            raise
        return _connected(file, "rw", wait_s)


def _connected(file: Path, mode: str, wait_s: float) -> sqlite3.Connection:
    uri = f"file:{quote(str(file))}?mode={mode}"
    connection = sqlite3.connect(uri, uri=True, timeout=wait_s, isolation_level=None)
    try:
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()  # opened in fact, and its schema parsed
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def usable_keys(url: str, *, now_ms: int) -> int:
    """Count the keys of all workspaces that are neither revoked nor expired; nothing is made, changed or migrated.

    It is 0 where there is no database yet, or one from before there were keys. `loom up` asks before anything starts,
    and what it imports stays in its memory for as long as Loom runs (SQLAlchemy: 22 MB): so SQLAlchemy stays out.

    Raises:
        BadFile: the file cannot be read as a database.
        Unavailable: it cannot be read now.
    """
    file = database_path(url)
    try:
        if not (file.exists() or file.is_symlink()):
            return 0
    except OSError as error:
        raise BadFile(f"{file}: {error.strerror}") from error
    with reading(file) as connection:
        if connection.execute(_HAS_TABLE).fetchone() is None:
            return 0
        return int(connection.execute(_USABLE, (now_ms,)).fetchone()[0])
