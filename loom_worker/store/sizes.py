"""How much the database holds: its file, what of it is free, and the rows of each table."""

from dataclasses import dataclass
from pathlib import Path

from loom_worker.store.file import reading
from loom_worker.store.schema import metadata
from loom_worker.store.space import INCREMENTAL


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of a database as it was at one moment."""

    file_bytes: int
    wal_bytes: int
    free_bytes: int
    """Of the file: pages that hold nothing."""
    can_shrink: bool
    """True if the sweep gives free pages back to the disk."""
    rows: dict[str, int]
    """By table; those that the file has."""


def sizes(file: Path) -> Sizes:
    """Look; nothing is changed. Counting takes 0.1 s for a million rows.

    Raises:
        BadFile, Unavailable: as ``reading``.
    """
    wal = file.with_name(f"{file.name}-wal")
    with reading(file) as connection:

        def pragma(name: str) -> int:
            return int(connection.execute(f"PRAGMA {name}").fetchone()[0])

        there = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        names = [name for name in metadata.tables if name in there]
        rows = {name: int(connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0]) for name in names}
        free_bytes = pragma("freelist_count") * pragma("page_size")
        can_shrink = pragma("auto_vacuum") == INCREMENTAL
    wal_bytes = wal.stat().st_size if wal.exists() else 0
    return Sizes(file.stat().st_size, wal_bytes, free_bytes, can_shrink, rows)
