"""The pages that transactions wrote, read from SQLite's write-ahead log beside the processes that write it.

https://sqlite.org/fileformat2.html#walformat: a header of 32 bytes, then frames of a header of 24 bytes and a page. The
file is opened by a process that holds no lock on it: closing it there drops no other's.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HEADER, FRAME = struct.Struct(">IIIIIIII"), struct.Struct(">IIIIII")
MAGIC = 0x377F0682
"""Its last bit says in which byte order the checksums are."""


class LogRestarted(Exception):
    """The log began anew meanwhile, so what was written cannot be told."""


@dataclass(frozen=True)
class Log:
    """What stands in a write-ahead log, up to the last transaction that is whole."""

    salts: tuple[int, int]
    """They change when the log begins anew."""
    page_bytes: int
    frames: int
    """Pages written since it began."""
    commits: int
    """Transactions that wrote."""
    database_pages: int
    """Size of the database after the last of them."""

    def since(self, before: "Log") -> "Log":
        """What was written after an earlier look; database_pages says by how much the database grew.

        Raises:
            LogRestarted: the log began anew in between.
        """
        if before.salts != self.salts:
            raise LogRestarted(f"{before.salts} became {self.salts}: something checkpointed")
        return Log(
            self.salts,
            self.page_bytes,
            self.frames - before.frames,
            self.commits - before.commits,
            self.database_pages - before.database_pages,
        )

    @property
    def written_bytes(self) -> int:
        """Of the frames with their headers."""
        return self.frames * (FRAME.size + self.page_bytes)


def read(file: Path) -> Log:
    """Look into the log of a database that others write.

    Raises:
        ValueError: it is no write-ahead log.
    """
    salts, page_bytes = _header(file)
    frames = commits = database_pages = 0
    for number, (_, size_pages) in enumerate(_frames(file), 1):
        if size_pages:  # the last frame of a transaction
            frames, commits, database_pages = number, commits + 1, size_pages
    return Log(salts, page_bytes, frames, commits, database_pages)


def _header(file: Path) -> tuple[tuple[int, int], int]:
    """The salts, and the bytes of a page."""
    with file.open("rb") as log:
        magic, _, page_bytes, _, *rest = HEADER.unpack(log.read(HEADER.size))
    if magic & ~1 != MAGIC:
        raise ValueError(f"{file.name} is no write-ahead log")
    return (rest[0], rest[1]), page_bytes


def _frames(file: Path) -> Iterator[tuple[int, int]]:
    """Of each frame the number of its page, and the size of the database if it ends a transaction, else 0."""
    salts, page_bytes = _header(file)
    with file.open("rb") as log:
        log.seek(HEADER.size)
        while len(head := log.read(FRAME.size)) == FRAME.size:
            page, size_pages, *found = FRAME.unpack(head)
            if (found[0], found[1]) != salts:  # left from before the log began anew
                return
            yield page, size_pages
            log.seek(page_bytes, 1)
