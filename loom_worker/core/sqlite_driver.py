"""The one module that decides which SQLite library this process uses.

Everything that opens a SQLite file inside a Loom process takes ``sqlite3`` from here, never from the standard library.
Two copies of SQLite in one process do not know of each other: when one closes a file, POSIX drops the locks that the
other holds on it, and the file can be corrupted (https://sqlite.org/howtocorrupt.html, 2.2). The only exception is
the child process that runs the model's SQL: it loads the standard library alone.
"""

import sqlite3 as codes
from typing import TYPE_CHECKING

__all__ = ["SOUND", "codes", "driver_name", "is_sound", "sqlite3", "unsound"]

# ``codes`` is the standard library's module, for numbers alone: pysqlite3 knows no extended result codes and no limits.

SOUND = (3, 51, 3)
"""Older versions can corrupt a WAL database that several connections write: https://sqlite.org/wal.html#walresetbug."""

if TYPE_CHECKING or codes.sqlite_version_info >= SOUND:
    # Preferred where it is sound: pysqlite3 is built without fdatasync, which makes durable commits slower.
    import sqlite3
else:
    try:
        from pysqlite3 import dbapi2 as sqlite3
    except ImportError:  # no wheel for this platform or this version of Python
        import sqlite3


def driver_name() -> str:
    """The Python module that brings the library: ``pysqlite3`` or ``sqlite3``."""
    return sqlite3.__name__.partition(".")[0]


def is_sound() -> bool:
    """True if the library has the fix of the WAL-reset corruption."""
    return sqlite3.sqlite_version_info >= SOUND


def unsound(version: str) -> str:
    """What is wrong with a version that is not sound, and what to do, as one sentence."""
    return (
        f"SQLite {version} has a rare WAL-reset corruption with several connections; "
        "use a Python built with SQLite 3.51.3 or newer, or `pip install pysqlite3` where it has a wheel "
        "(x86-64 Linux with glibc 2.28 or musl 1.2, Apple silicon; Python 3.11 to 3.14)."
    )
