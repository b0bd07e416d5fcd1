"""Disk space of the database file: how much it takes, and how free pages go back to the disk."""

from contextlib import closing
from pathlib import Path

from loom_worker.core.errors import Unavailable
from loom_worker.core.sqlite_driver import sqlite3
from loom_worker.store.engines.engine import WHOLE, DatabaseSize, Engine
from loom_worker.store.engines.sqlite_file import file_error, reading
from loom_worker.store.schema import metadata

STEP_PAGES = 32
"""Pages freed in one transaction, which takes some milliseconds."""
STEPS = 16
"""Transactions in one sweep: 2 MB."""
LEAST_PAGES = 1_000
"""4 MB: fewer free pages are soon used again."""
SHARE = 0.1
"""Share of the file that may be free."""
INCREMENTAL = 2
"""Value of ``PRAGMA auto_vacuum`` for a file that can be made smaller in steps."""


def sizes(file: Path) -> DatabaseSize:
    """Measure a database without changing it. Counting takes 0.1 s for a million rows.

    Raises:
        BadFile, Unavailable: as ``reading``.
    """
    wal = file.with_name(f"{file.name}-wal")
    with reading(file) as connection:

        def pragma(name: str) -> int:
            return int(connection.execute(f"PRAGMA {name}").fetchone()[0])

        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        names = [name for name in metadata.tables if name in tables]
        rows = {name: int(connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0]) for name in names}
        free_bytes = pragma("freelist_count") * pragma("page_size")
        can_shrink = pragma("auto_vacuum") == INCREMENTAL
    wal_bytes = wal.stat().st_size if wal.exists() else 0
    return DatabaseSize(file.stat().st_size, wal_bytes, free_bytes, can_shrink=can_shrink, rows=rows)


def give_back(engine: Engine) -> int:
    """Make the file smaller by some of its free pages, if many are free; return how many.

    For a file that an earlier Loom made it does nothing until ``shrink`` has run once.
    """
    with engine.read() as tx:
        mode, free, pages = (
            int(tx.exec_driver_sql(f"PRAGMA {name}").scalar_one())
            for name in ("auto_vacuum", "freelist_count", "page_count")
        )
    surplus = free - max(LEAST_PAGES, int(pages * SHARE))
    if mode != INCREMENTAL or surplus <= 0:
        return 0
    steps = min(STEPS, -(-surplus // STEP_PAGES))
    for _ in range(steps):
        with engine.write(durable=False, lock=WHOLE) as tx:
            # A page is freed with each row that is fetched; SQLAlchemy would close a result that has no columns.
            connection = tx.connection.dbapi_connection
            if connection is not None:
                connection.execute(f"PRAGMA incremental_vacuum({STEP_PAGES})").fetchall()
    return steps * STEP_PAGES


def shrink(file: Path) -> tuple[int, int]:
    """Rewrite the file without its free pages, so that it can be made smaller in steps from then on.

    It needs as much free disk as the file has bytes, and about a second for each 100 MB.

    Returns:
        The size of the file in bytes before and after.

    Raises:
        Unavailable: a process of Loom has the file open, or the disk is full.
        BadFile: it cannot be read as a database.
    """
    before_bytes = file.stat().st_size
    try:
        with closing(sqlite3.connect(file, timeout=1, isolation_level=None)) as connection:
            # It can be exclusive only while nobody else has the file open: VACUUM would stop every writer.
            connection.execute("PRAGMA locking_mode=EXCLUSIVE")
            connection.execute("BEGIN EXCLUSIVE")
            connection.execute("COMMIT")
            connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            raise Unavailable(f"{file} is in use; stop Loom first (`loom stop`)") from error
        raise file_error(error, file) from error
    except sqlite3.Error as error:
        raise file_error(error, file) from error
    return before_bytes, file.stat().st_size
