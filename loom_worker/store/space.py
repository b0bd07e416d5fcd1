"""Free pages of the database file: given back to the disk a few at a time, or all at once while nothing else runs."""

from contextlib import closing
from pathlib import Path

from loom_worker.core.errors import Unavailable
from loom_worker.core.sqlite_driver import sqlite3
from loom_worker.store.database import Database
from loom_worker.store.file import told

STEP_PAGES = 32
"""Given back in one transaction, which takes some milliseconds."""
STEPS = 16
"""In one sweep: 2 MB."""
LEAST_PAGES = 1_000
"""4 MB: fewer free pages are soon used again."""
SHARE = 0.1
"""Of the file that may be free."""
INCREMENTAL = 2
"""What ``PRAGMA auto_vacuum`` says of a file that can be made smaller in steps."""


def give_back(database: Database) -> int:
    """Make the file smaller by some of its free pages, if many are free; return how many.

    A file that an earlier Loom made cannot do that before ``shrink``.

    Raises:
        Unavailable: the database did not answer.
    """
    with database.read() as tx:
        mode, free, pages = (
            int(tx.exec_driver_sql(f"PRAGMA {name}").scalar_one())
            for name in ("auto_vacuum", "freelist_count", "page_count")
        )
    surplus = free - max(LEAST_PAGES, int(pages * SHARE))
    if mode != INCREMENTAL or surplus <= 0:
        return 0
    steps = min(STEPS, -(-surplus // STEP_PAGES))
    for _ in range(steps):
        with database.write() as tx:
            # It gives a page back with each row that is fetched; SQLAlchemy would close a result without columns.
            connection = tx.connection.dbapi_connection
            if connection is not None:
                connection.execute(f"PRAGMA incremental_vacuum({STEP_PAGES})").fetchall()
    return steps * STEP_PAGES


def shrink(file: Path) -> tuple[int, int]:
    """Write the file anew into as little room as it needs, so that it can be made smaller in steps from then on.

    It takes as much free disk as the file has bytes, and a second for some 100 MB.

    Returns:
        Its bytes before and after.

    Raises:
        Unavailable: a process of Loom's has it open, or there is no room.
        BadFile: it cannot be read as a database.
    """
    before = _size(file)
    try:
        with closing(sqlite3.connect(file, timeout=1, isolation_level=None)) as connection:
            # Only while nobody else has the file open can it be exclusive: VACUUM would stop every writer.
            connection.execute("PRAGMA locking_mode=EXCLUSIVE")
            connection.execute("BEGIN EXCLUSIVE")
            connection.execute("COMMIT")
            connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            raise Unavailable(f"{file} is in use; stop Loom first (`loom stop`)") from error
        raise told(error, file) from error
    except sqlite3.Error as error:
        raise told(error, file) from error
    return before, _size(file)


def _size(file: Path) -> int:
    return file.stat().st_size
