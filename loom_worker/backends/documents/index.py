"""The index of a folder: a SQLite file with every passage and a full-text index over them.

It is a cache: made by another version of Loom, or damaged, it is made anew. One process at a time fills it,
as far as the time allows (``refresh``; the next call goes on), any number reads it meanwhile, and each file is stored
in one transaction, so a kill loses one file.
"""

import contextlib
import fcntl
import hashlib
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from loom_worker.backends.documents import folder
from loom_worker.backends.documents.extract import MAX_CHARS, UnreadableDocument
from loom_worker.backends.documents.folder import FolderEntry, FolderListing
from loom_worker.backends.documents.reader import Answer, Reading, ReadRequest
from loom_worker.core.errors import ToolFailed
from loom_worker.core.sqlite_driver import codes, sqlite3
from loom_worker.core.words import grams

VERSION = 2
"""Version of tables and of how texts are cut; another one makes every index anew."""
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


POLL_S = 0.05
MAX_TOTAL_CHARS = 200_000_000
"""Characters kept of all documents of a folder: an index of some 600 MB."""

_NEXT = """
SELECT id, name, kind, signature, next_page, lines, chars, (SELECT total(chars) FROM files) AS all_chars
FROM files WHERE is_waiting ORDER BY name != ?, next_page > 1, name LIMIT 1
"""
_ENTER = """
INSERT INTO files (name, kind, size_bytes, signature, flaw, is_waiting)
VALUES (:name, :kind, :size_bytes, :signature, :flaw, :flaw = '')
ON CONFLICT (name) DO UPDATE SET
    kind = :kind, size_bytes = :size_bytes, signature = :signature, flaw = :flaw, is_waiting = :flaw = '',
    next_page = 1, chars = iif(:flaw = '', chars, 0)
"""
_DROP_PASSAGES = "DELETE FROM passages WHERE file_id = ?"
_ADD = """
INSERT INTO passages (file_id, page, first, last, skip, name, heading, body, grams) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_READ = """
UPDATE files SET flaw = '', is_waiting = :next_page IS NOT NULL, next_page = coalesce(:next_page, 1), title = :title,
    pages = :pages, encoding = :encoding, lines = :lines, cut = :cut,
    chars = (SELECT total(length(body)) FROM passages WHERE file_id = :id)
WHERE id = :id
"""
_GIVE_UP = """
UPDATE files SET flaw = ?, is_waiting = 0, next_page = 1, title = '', pages = NULL, lines = 0, chars = 0, cut = ''
WHERE id = ?
"""

_CUT = "UPDATE files SET is_waiting = 0, cut = ? WHERE id = ?"


@dataclass(frozen=True, slots=True)
class UnreadFile:
    """A file whose content, or the rest of it, is to be read."""

    id: int
    name: str
    kind: str
    signature: str
    next_page: int
    lines: int
    """Already there; 0 if it is read from its beginning."""
    room_chars: int
    """Characters that may come of it."""


@dataclass(frozen=True, slots=True)
class RefreshDeadlines:
    """How long a call may take to bring the index up to date."""

    refresh_s: float = 10.0
    """No further file is begun after this."""
    file_s: float = 10.0
    """For one file; a long PDF is gone on with by the next call, other kinds are cut."""
    wait_s: float = 3.0
    """For another process, or thread, that is at it already."""


def refresh(
    connection: sqlite3.Connection, root: Path, index_file: Path, *, first: str = "", deadlines: RefreshDeadlines
) -> None:
    """Take over what changed in the folder, unless somebody else is at it and stays at it.

    Args:
        first: the file to read before others.

    Raises:
        ToolFailed: the folder cannot be read.
    """
    until = time.monotonic() + deadlines.refresh_s
    with _locked(index_file.with_suffix(".lock"), until=time.monotonic() + deadlines.wait_s) as is_ours:
        if not is_ours:
            return
        with _opened(root) as root_fd:
            _take_over(connection, folder.listed(root_fd, skip=_identity(index_file.parent)))
            _read_waiting(connection, root_fd, first=first, until=until, file_s=deadlines.file_s)


def listing(root: Path, index_folder: Path) -> FolderListing:
    """The files of the folder, by their names alone."""
    with _opened(root) as root_fd:
        return folder.listed(root_fd, skip=_identity(index_folder))


def _read_waiting(connection: sqlite3.Connection, root_fd: int, *, first: str, until: float, file_s: float) -> None:
    with Reading() as reading:
        while time.monotonic() < until and (file := _next_waiting(connection, first=first)):
            try:
                _read(connection, root_fd, file, reading, file_s=file_s)
            except UnreadableDocument as error:
                _give_up(connection, file, str(error))


def _read(connection: sqlite3.Connection, root_fd: int, file: UnreadFile, reading: Reading, *, file_s: float) -> None:
    if file.room_chars <= 0:
        raise UnreadableDocument("the index is full")
    with folder.opened_file(root_fd, file.name) as fd:
        # What is read may be newer than what was listed: then the next listing finds it changed, and it is read again.
        order = ReadRequest(
            kind=file.kind, from_page=file.next_page, from_line=file.lines + 1, room_chars=file.room_chars, for_s=file_s
        )
        answer = reading.read(fd, order)
    _store(connection, file, answer)


@contextmanager
def _opened(root: Path) -> Iterator[int]:
    try:
        with folder.opened(root) as root_fd:
            yield root_fd
    except OSError as error:
        raise ToolFailed(f"the folder of documents cannot be read: {error.strerror}", "UNAVAILABLE") from error


@contextmanager
def _locked(file: Path, *, until: float) -> Iterator[bool]:
    """True if the lock is ours within the time; the system gives it back when its holder dies."""
    fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        is_ours = _taken(fd)
        while not is_ours and time.monotonic() < until:
            time.sleep(POLL_S)
            is_ours = _taken(fd)
        yield is_ours
    finally:
        os.close(fd)


def _taken(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _take_over(connection: sqlite3.Connection, listing: FolderListing) -> None:
    """Make the index know what the folder holds: new and changed files wait to be read, gone ones are dropped."""
    known = dict(connection.execute("SELECT name, signature FROM files").fetchall())
    changed = [entry for entry in listing.entries if known.get(entry.name) != _mark(entry)]
    gone = known.keys() - {entry.name for entry in listing.entries}
    if not changed and not gone:
        return
    with transaction(connection):
        for name in (*gone, *(entry.name for entry in changed if entry.flaw)):
            connection.execute("DELETE FROM passages WHERE file_id = (SELECT id FROM files WHERE name = ?)", (name,))
        connection.executemany("DELETE FROM files WHERE name = ?", [(name,) for name in gone])
        connection.executemany(_ENTER, [asdict(entry) | {"signature": _mark(entry)} for entry in changed])


def _next_waiting(connection: sqlite3.Connection, *, first: str = "") -> UnreadFile | None:
    """The file to read now: ``first``, else new ones by name, else the rest of a long one; None: all are read."""
    row = connection.execute(_NEXT, (first,)).fetchone()
    if row is None:
        return None
    is_new = row["next_page"] == 1
    had = 0 if is_new else row["chars"]
    room = min(MAX_CHARS - had, MAX_TOTAL_CHARS - int(row["all_chars"]) + (row["chars"] if is_new else 0))
    own = (row["id"], row["name"], row["kind"], row["signature"], row["next_page"])
    return UnreadFile(*own, lines=0 if is_new else row["lines"], room_chars=room)


def _store(connection: sqlite3.Connection, file: UnreadFile, answer: Answer) -> None:
    """Keep what was read of a file, in place of what was known of it unless this goes on with it."""
    rows = [
        (file.id, each.page, each.first, each.last, each.skip, file.name, *each[4:], grams(each.body) or "")
        for each in answer["passages"]
    ]
    with transaction(connection):
        if file.next_page == 1:
            connection.execute(_DROP_PASSAGES, (file.id,))
        connection.executemany(_ADD, rows)
        values = {key: answer[key] for key in ("next_page", "title", "pages", "encoding", "lines", "cut")}
        connection.execute(_READ, {"id": file.id, **values})


def _give_up(connection: sqlite3.Connection, file: UnreadFile, flaw: str) -> None:
    """Note why a file, or the rest of a long one, is not read; it is tried again when it changes."""
    with transaction(connection):
        if file.next_page > 1:
            connection.execute(_CUT, (f"the pages from {file.next_page} on are left out: {flaw}", file.id))
            return
        connection.execute(_DROP_PASSAGES, (file.id,))
        connection.execute(_GIVE_UP, (flaw, file.id))


def _mark(entry: FolderEntry) -> str:
    return entry.signature or entry.flaw
