"""The database as a file: where it is, looked at without a change, checked."""

import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from sqlalchemy.engine import make_url

from loom_worker.core.errors import BadFile, LoomError, Unavailable
from loom_worker.core.sqlite_driver import codes, sqlite3
from loom_worker.store.failures import failure_of

PATIENCE_S = 10.0
AGAIN_S = 0.01
MOST_FLAWS = 5
"""Flaws that are told; a damaged file has thousands."""


def path_of(url: str) -> Path:
    """The file behind LOOM_DATABASE_URL."""
    return Path(make_url(url).database or "")


@contextmanager
def reading(file: Path, *, patience_s: float = PATIENCE_S) -> Iterator[sqlite3.Connection]:
    """A connection that changes nothing in the file, not even when it is closed.

    An ordinary connection that is the last one to be closed writes the -wal back into the file.

    Args:
        patience_s: how long another process may hold a lock that readers must wait for.

    Raises:
        BadFile: it cannot be read as a database; the text says what to do.
        Unavailable: not now.
    """
    if not file.is_file():
        raise BadFile(f"{file} is {'a folder' if file.is_dir() else 'no file'}; name the file of a database")
    if not os.access(file, os.R_OK):
        raise BadFile(f"{file} may not be read by this user (uid {os.geteuid()}); change its owner or mode")
    try:
        with closing(_opened(file, patience_s)) as connection:
            yield connection
    except sqlite3.Error as error:
        raise told(error, file) from error


def into_wal(connection: sqlite3.Connection, *, patience_s: float = PATIENCE_S) -> None:
    """Let the file have a write-ahead log, if it has none yet.

    SQLite's own timeout does not hold for that: two that switch at once would wait for each other, so one is refused
    (of four processes that opened 400 new files together, one in 18).

    Raises:
        sqlite3.OperationalError: others held the file for so long, or it cannot be written.
    """
    deadline_s = time.monotonic() + patience_s
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != codes.SQLITE_BUSY or time.monotonic() > deadline_s:
                raise
            time.sleep(AGAIN_S)


def told(error: sqlite3.Error, file: Path) -> LoomError:
    """The error for who runs Loom: it names the file and says what to do."""
    failure = failure_of(error, file)
    if failure is None:
        return BadFile(f"{file} cannot be read as a database of Loom's: {error}")
    kind = Unavailable if failure.is_passing else BadFile
    return kind(f"{file} {failure.text} ({error}); {failure.fix}")


def flaws(file: Path, *, is_full: bool) -> tuple[str, ...]:
    """What is wrong inside the file, at most MOST_FLAWS of it; empty for a sound one.

    With 100,000 messages (200 MB) quick_check took 0.23 s, integrity_check 0.65 s and foreign_key_check 0.1 s.

    Args:
        is_full: also hold every index against its table.

    Raises:
        BadFile, Unavailable: as ``reading``.
    """
    with reading(file) as connection:
        found = damage(connection, is_full=is_full)
        return found or _dangling(connection)


def damage(connection: sqlite3.Connection, *, is_full: bool) -> tuple[str, ...]:
    """What SQLite's own check finds, at most MOST_FLAWS lines."""
    pragma = "integrity_check" if is_full else "quick_check"
    try:
        lines = [str(row[0]) for row in connection.execute(f"PRAGMA {pragma}({MOST_FLAWS})")]
    except sqlite3.DatabaseError as error:  # so damaged that the check itself cannot go on
        return (str(error),)
    return () if lines == ["ok"] else tuple(" ".join(line.split()) for line in lines[:MOST_FLAWS])


def _dangling(connection: sqlite3.Connection) -> tuple[str, ...]:
    rows = connection.execute("PRAGMA foreign_key_check").fetchmany(MOST_FLAWS)
    return tuple(
        f"row {rowid} of {table} belongs to a row of {parent} that is not there" for table, rowid, parent, _ in rows
    )


def _opened(file: Path, patience_s: float) -> sqlite3.Connection:
    try:
        return _connected(file, "ro", patience_s)
    except sqlite3.OperationalError as error:
        # A process died in the middle of a transaction, before the file was in WAL mode, as a backup just put in place
        # is: to read such a file is to undo that transaction first.
        has_journal = file.with_name(f"{file.name}-journal").exists()
        if error.sqlite_errorcode & 0xFF != codes.SQLITE_READONLY or not has_journal:
            raise
        return _connected(file, "rw", patience_s)


def _connected(file: Path, mode: str, patience_s: float) -> sqlite3.Connection:
    uri = f"file:{quote(str(file))}?mode={mode}"
    connection = sqlite3.connect(uri, uri=True, timeout=patience_s, isolation_level=None)
    try:
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()  # opened in fact, and its schema parsed
    except sqlite3.Error:
        connection.close()
        raise
    return connection
