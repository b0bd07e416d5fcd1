"""What the index is given: the names a folder holds now, and the content of one file at a time."""

from dataclasses import dataclass

from loom_worker.backends.documents.extract import MAX_CHARS
from loom_worker.backends.documents.folder import FolderEntry, FolderListing
from loom_worker.backends.documents.index import transaction
from loom_worker.backends.documents.reader import Answer
from loom_worker.core.sqlite_driver import sqlite3
from loom_worker.core.words import grams

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
    pages = :pages, lines = :lines, cut = :cut,
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


def take_over(connection: sqlite3.Connection, listing: FolderListing) -> None:
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
        connection.executemany(_ENTER, [_row(entry) for entry in changed])


def next_waiting(connection: sqlite3.Connection, *, first: str = "") -> UnreadFile | None:
    """The file to read now: ``first``, else new ones by name, else the rest of a long one; None: all are read."""
    row = connection.execute(_NEXT, (first,)).fetchone()
    if row is None:
        return None
    is_new = row["next_page"] == 1
    had = 0 if is_new else row["chars"]
    room = min(MAX_CHARS - had, MAX_TOTAL_CHARS - int(row["all_chars"]) + (row["chars"] if is_new else 0))
    own = (row["id"], row["name"], row["kind"], row["signature"], row["next_page"])
    return UnreadFile(*own, lines=0 if is_new else row["lines"], room_chars=room)


def store(connection: sqlite3.Connection, file: UnreadFile, answer: Answer) -> None:
    """Keep what was read of a file, in place of what was known of it unless this goes on with it."""
    rows = [
        (
            file.id,
            each.page,
            each.first,
            each.last,
            each.skip,
            file.name,
            each.heading,
            each.body,
            grams(each.body) or "",
        )
        for each in answer["passages"]
    ]
    with transaction(connection):
        if file.next_page == 1:
            connection.execute(_DROP_PASSAGES, (file.id,))
        connection.executemany(_ADD, rows)
        values = {key: answer[key] for key in ("next_page", "title", "pages", "lines", "cut")}
        connection.execute(_READ, {"id": file.id, **values})


def give_up(connection: sqlite3.Connection, file: UnreadFile, flaw: str) -> None:
    """Note why a file, or the rest of a long one, is not read; it is tried again when it changes."""
    with transaction(connection):
        if file.next_page > 1:
            connection.execute(_CUT, (f"the pages from {file.next_page} on are left out: {flaw}", file.id))
            return
        connection.execute(_DROP_PASSAGES, (file.id,))
        connection.execute(_GIVE_UP, (flaw, file.id))


def _mark(entry: FolderEntry) -> str:
    return entry.signature or entry.flaw


def _row(entry: FolderEntry) -> dict[str, object]:
    own = {"name": entry.name, "kind": entry.kind, "size_bytes": entry.size_bytes}
    return {**own, "signature": _mark(entry), "flaw": entry.flaw}
