"""Brings the index of a folder up to date, as far as the time allows; the next call goes on."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from loom_worker.backends.documents import filling, folder
from loom_worker.backends.documents.extract import UnreadableDocument
from loom_worker.backends.documents.filling import UnreadFile
from loom_worker.backends.documents.reading import Reading
from loom_worker.core.errors import ToolFailed
from loom_worker.core.sqlite_driver import sqlite3

POLL_S = 0.05


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
    connection: sqlite3.Connection, root: Path, index_file: Path, *, first: str = "", patience: RefreshDeadlines
) -> None:
    """Take over what changed in the folder, unless somebody else is at it and stays at it.

    Args:
        first: the file to read before others.

    Raises:
        ToolFailed: the folder cannot be read.
    """
    until = time.monotonic() + patience.refresh_s
    with _locked(index_file.with_suffix(".lock"), until=time.monotonic() + patience.wait_s) as is_ours:
        if not is_ours:
            return
        with _opened(root) as root_fd:
            filling.take_over(connection, folder.listed(root_fd, skip=_identity(index_file.parent)))
            _read_waiting(connection, root_fd, first=first, until=until, file_s=patience.file_s)


def listing(root: Path, index_folder: Path) -> folder.FolderListing:
    """What the folder holds, by the names alone.

    Raises:
        ToolFailed: the folder cannot be read.
    """
    with _opened(root) as root_fd:
        return folder.listed(root_fd, skip=_identity(index_folder))


def _read_waiting(connection: sqlite3.Connection, root_fd: int, *, first: str, until: float, file_s: float) -> None:
    with Reading() as reading:
        while time.monotonic() < until and (file := filling.next_waiting(connection, first=first)):
            try:
                _read(connection, root_fd, file, reading, file_s=file_s)
            except UnreadableDocument as error:
                filling.give_up(connection, file, str(error))


def _read(connection: sqlite3.Connection, root_fd: int, file: UnreadFile, reading: Reading, *, file_s: float) -> None:
    if file.room_chars <= 0:
        raise UnreadableDocument("the index is full")
    with folder.opened_file(root_fd, file.name) as fd:
        # What is read may be newer than what was listed: then the next listing finds it changed, and it is read again.
        answer = reading.read(
            fd,
            {
                "kind": file.kind,
                "from_page": file.next_page,
                "from_line": file.lines + 1,
                "room_chars": file.room_chars,
                "for_s": file_s,
            },
        )
    filling.store(connection, file, answer)


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
