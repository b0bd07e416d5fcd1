"""The index of a folder: a SQLite file with every passage and a full-text index over them.

It is a cache: made by another version of Loom, or damaged, it is made anew. One process at a time fills it (see
``refresh``), any number reads it meanwhile, and each file is stored in one transaction, so a kill loses one file.
"""

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from loom_worker.core.errors import ToolFailed
from loom_worker.core.sqlite_driver import codes, sqlite3

VERSION = 2
"""Of tables and of how texts are cut; another one makes every index anew."""
BUSY_S = 10.0

_DAMAGED = (codes.SQLITE_CORRUPT, codes.SQLITE_NOTADB)

_SCHEMA = f"""
PRAGMA journal_mode=WAL;
BEGIN;
CREATE TABLE files (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    size_bytes INTEGER NOT NULL,
    signature TEXT NOT NULL,
    flaw TEXT NOT NULL,
    is_waiting INTEGER NOT NULL, -- its content, or the rest of it, is still to be read
    next_page INTEGER NOT NULL DEFAULT 1, -- where reading goes on
    title TEXT NOT NULL DEFAULT '',
    pages INTEGER,
    encoding TEXT NOT NULL DEFAULT '', -- that was guessed, or 'unknown'
    lines INTEGER NOT NULL DEFAULT 0,
    chars INTEGER NOT NULL DEFAULT 0,
    cut TEXT NOT NULL DEFAULT '' -- why the rest of it is left out
);
CREATE INDEX files_waiting ON files (name) WHERE is_waiting;
CREATE TABLE passages (
    id INTEGER PRIMARY KEY,
    file_id INTEGER NOT NULL REFERENCES files,
    page INTEGER,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    skip INTEGER NOT NULL,
    name TEXT NOT NULL,
    heading TEXT NOT NULL,
    body TEXT NOT NULL,
    grams TEXT NOT NULL
);
CREATE INDEX passages_last ON passages (file_id, last, skip);
CREATE INDEX passages_page ON passages (file_id, page) WHERE page IS NOT NULL;
CREATE VIRTUAL TABLE found USING fts5 (
    name, heading, body, grams, content=passages, content_rowid=id, tokenize="porter unicode61 remove_diacritics 2"
);
CREATE TRIGGER passages_added AFTER INSERT ON passages BEGIN
    INSERT INTO found (rowid, name, heading, body, grams) VALUES (new.id, new.name, new.heading, new.body, new.grams);
END;
CREATE TRIGGER passages_gone AFTER DELETE ON passages BEGIN
    INSERT INTO found (found, rowid, name, heading, body, grams)
    VALUES ('delete', old.id, old.name, old.heading, old.body, old.grams);
END;
PRAGMA user_version={VERSION};
COMMIT;
"""


class Damaged(Exception):
    """The index is no sound database, or one of another version: remove it, and start anew."""


def file_of(root: Path, folder: Path) -> Path:
    """The index file of a folder of documents, named by a digest of its path."""
    return folder / f"{hashlib.sha256(bytes(root)).hexdigest()[:32]}-{VERSION}.db"


def remove(file: Path) -> None:
    """Remove an index; who reads it at the moment may go on."""
    for suffix in ("", "-wal", "-shm"):
        file.with_name(file.name + suffix).unlink(missing_ok=True)


@contextlib.contextmanager
def connected(file: Path) -> Iterator[sqlite3.Connection]:
    """A connection to an index, which is made if it is not there; closed at the end.

    Raises:
        Damaged: the file is no index, as is found out now or while it is used.
        ToolFailed: it cannot be used.
    """
    try:
        if not file.exists():
            _make(file)
        connection = sqlite3.connect(file, timeout=BUSY_S, isolation_level=None)
        with contextlib.closing(connection):
            connection.row_factory = sqlite3.Row
            # After a power cut the last files are read anew; until then nothing waits for the disk.
            connection.execute("PRAGMA synchronous=NORMAL")
            if connection.execute("PRAGMA user_version").fetchone()[0] != VERSION:
                raise Damaged(file.name)
            yield connection
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED:
            raise Damaged(file.name) from error
        raise ToolFailed(f"the index of the documents cannot be used: {error}", "UNAVAILABLE") from error
    except OSError as error:
        raise ToolFailed(f"the index of the documents cannot be used: {error.strerror}", "UNAVAILABLE") from error


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All or nothing of what is written within."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _make(file: Path) -> None:
    """Create it under another name and link it, so that no other process ever sees half of it."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file.parent.chmod(0o700)
    with tempfile.TemporaryDirectory(dir=file.parent) as temporary:
        made = Path(temporary) / file.name
        with contextlib.closing(sqlite3.connect(made)) as connection:
            connection.executescript(_SCHEMA)
        with contextlib.suppress(FileExistsError):  # another process was faster
            os.link(made, file)
