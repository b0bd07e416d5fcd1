"""What a process asks of its SQLite database, counted in a file that others can read while it runs.

A process counts in one file of its own, ``<kind>.<pid>.counts``: eight bytes for each of COUNTS, little-endian. It is
mapped into memory, so counting makes no system call, and the counts can be read before the process ends.
"""

import mmap
import os
import struct
import threading
from collections import Counter
from pathlib import Path

STATEMENTS = "SQL statements"
"""Other than those that begin and end transactions, and PRAGMA."""
PRAGMAS = "PRAGMA statements"
READS = "read transactions"
"""Also each SELECT outside of one."""
WRITES = "write transactions"
"""Those that changed rows and were committed, each statement that did so outside of one included."""
EMPTY_WRITES = "write transactions without a change"
"""They held SQLite's write lock and wrote nothing, or were rolled back."""
DURABLE = "durable commits"
"""Of WRITES: those that waited for the disk (synchronous=FULL)."""
REFUSED = "tries for the write lock that another process held"
OPENED = "connections opened"

COUNTS = (STATEMENTS, PRAGMAS, READS, WRITES, EMPTY_WRITES, DURABLE, REFUSED, OPENED)
SUFFIX = ".counts"
_CELL = struct.Struct("<Q")


class Counters:
    """Those of this process; threads may share them."""

    def __init__(self, folder: Path, kind: str) -> None:
        """Begin with zeros, in a file of its own in a folder that is made if need be.

        Args:
            kind: of the process, as processes.kind_of tells it.
        """
        folder.mkdir(parents=True, exist_ok=True)
        file = os.open(folder / f"{kind}.{os.getpid()}{SUFFIX}", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        os.truncate(file, _CELL.size * len(COUNTS))
        self._cells = mmap.mmap(file, 0)
        os.close(file)
        self._lock = threading.Lock()

    def add(self, name: str, more: int = 1) -> None:
        """Count one of COUNTS."""
        at = COUNTS.index(name) * _CELL.size
        with self._lock:
            _CELL.pack_into(self._cells, at, _CELL.unpack_from(self._cells, at)[0] + more)


def read(folder: Path) -> dict[str, Counter[str]]:
    """Kind of process to its counts so far, those of several processes of a kind together."""
    found: dict[str, Counter[str]] = {}
    for file in sorted(folder.glob(f"*{SUFFIX}")):
        values = (value for (value,) in _CELL.iter_unpack(file.read_bytes()))
        found.setdefault(file.name.rsplit(".", 2)[0], Counter()).update(dict(zip(COUNTS, values, strict=True)))
    return found


def table(found: dict[str, Counter[str]]) -> str:
    """The counts in Markdown, a row for each, a column for each kind of process."""
    kinds = sorted(found)
    head = f"| count | {' | '.join(kinds)} |\n|{' --- |' * (len(kinds) + 1)}"
    rows = (f"| {name} | {' | '.join(f'{found[kind][name]:,}' for kind in kinds)} |" for name in COUNTS)
    return "\n".join((head, *rows))
