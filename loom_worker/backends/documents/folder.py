"""A folder as a list of names, and its files opened one by one; nothing outside of it is ever opened.

No link is followed: each part of a name is opened by itself, below the folder that was opened before it, and must be
no symbolic link at that moment. So a name cannot lead out, and neither can a folder or file that is swapped for a link
between listing and opening. Hard links are files of the folder like others: their creator could read their
content.
"""

import errno
import os
import stat
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from loom_worker.backends.documents.extract import UnreadableDocument, kind_of

MAX_FILES = 10_000
MAX_FILE_BYTES = 50_000_000
MAX_DEPTH = 32
MAX_SEEN = 100_000
"""Names looked at, those that are no documents included."""

_REASONS = {
    errno.ELOOP: "a symbolic link: links are not followed",
    errno.ENOTDIR: "its folder is a symbolic link or gone",
    errno.ENOENT: "it is gone",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
}
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_UNSHOWN = frozenset({"Cc", "Cs", "Zl", "Zp"})


@dataclass(frozen=True, slots=True)
class FolderEntry:
    """A file of the folder; one with a flaw is known, but not read."""

    name: str
    """Relative, parts joined by ``/``; what cannot be shown is escaped."""
    kind: str = ""
    size_bytes: int = 0
    signature: str = ""
    """Another one means that the content may be another."""
    flaw: str = ""


@dataclass(frozen=True, slots=True)
class FolderListing:
    """What a folder holds, by name."""

    entries: tuple[FolderEntry, ...]
    is_cut: bool = False
    """More than MAX_FILES files, or MAX_SEEN names: the rest is unknown."""


@contextmanager
def opened(root: Path) -> Iterator[int]:
    """The folder itself, as a descriptor; its own path may hold links, as its owner named it.

    Raises:
        OSError: it is no folder, gone, or may not be read.
    """
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def listed(root_fd: int, *, skip: tuple[int, int] | None = None, max_files: int = MAX_FILES) -> FolderListing:
    """All files but hidden ones (``.git``, ``.env``), which are nobody's documents.

    Args:
        skip: device and inode of a folder that is left out, such as that of the index.
    """
    names: dict[str, FolderEntry] = {}
    seen = list(islice(_walk(root_fd, "", skip=skip, depth=0), MAX_SEEN + 1))
    for entry in sorted(seen[:MAX_SEEN], key=lambda entry: (bool(entry.flaw), entry.name)):
        names.setdefault(entry.name, entry)  # an escaped name may look like a real one, which comes first
    kept = sorted(list(names.values())[:max_files], key=lambda entry: entry.name)
    return FolderListing(tuple(kept), is_cut=len(names) > max_files or len(seen) > MAX_SEEN)


@contextmanager
def opened_file(root_fd: int, name: str) -> Iterator[int]:
    """A regular file of the folder, as a descriptor; never blocks, never follows a link.

    Raises:
        UnreadableDocument: it is no such file (any more).
    """
    parts = name.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise UnreadableDocument("no name of a file in the folder")
    opened_fds: list[int] = []
    try:
        try:
            fd = root_fd
            for part in parts[:-1]:
                fd = os.open(part, _FLAGS | os.O_DIRECTORY, dir_fd=fd)
                opened_fds.append(fd)
            fd = _open_regular(parts[-1], fd)
            opened_fds.append(fd)
        except (OSError, UnicodeError) as error:
            raise UnreadableDocument(_reason(error)) from error
        yield fd
    finally:
        for fd in opened_fds:
            os.close(fd)


def signature(status: os.stat_result) -> str:
    """Size, inode and times of content and entry: what changes when a file is written, replaced or restored."""
    return f"{status.st_size}.{status.st_ino}.{status.st_mtime_ns}.{status.st_ctime_ns}"


def _open_regular(name: str, folder_fd: int) -> int:
    """Look first, as opening a device may do something; then open without waiting for a pipe, and look again."""
    if not stat.S_ISREG(os.stat(name, dir_fd=folder_fd, follow_symlinks=False).st_mode):
        raise UnreadableDocument("no regular file")
    fd = os.open(name, _FLAGS | os.O_NONBLOCK | os.O_NOCTTY, dir_fd=folder_fd)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise UnreadableDocument("no regular file")
    return fd


def _walk(fd: int, prefix: str, *, skip: tuple[int, int] | None, depth: int) -> Iterator[FolderEntry]:
    with os.scandir(fd) as found:
        items = sorted(islice(found, MAX_SEEN), key=lambda item: item.name)
    for item in items:
        if item.name.startswith("."):
            continue
        name = prefix + item.name
        try:
            status = item.stat(follow_symlinks=False)
        except OSError as error:
            yield FolderEntry(_shown(name), flaw=_reason(error))
            continue
        if stat.S_ISDIR(status.st_mode) and _is_shown(item.name):
            if (status.st_dev, status.st_ino) != skip:
                yield from _below(fd, item.name, name, skip=skip, depth=depth)
        else:
            yield _entry(name, status)


def _below(fd: int, part: str, name: str, *, skip: tuple[int, int] | None, depth: int) -> Iterator[FolderEntry]:
    if depth >= MAX_DEPTH:
        yield FolderEntry(name, flaw=f"a folder more than {MAX_DEPTH} folders deep")
        return
    try:
        folder_fd = os.open(part, _FLAGS | os.O_DIRECTORY, dir_fd=fd)
    except OSError as error:
        yield FolderEntry(name, flaw=_reason(error))
        return
    try:
        yield from _walk(folder_fd, f"{name}/", skip=skip, depth=depth + 1)
    finally:
        os.close(folder_fd)


def _entry(name: str, status: os.stat_result) -> FolderEntry:
    flaw, kind = _flaw(name, status), ""
    if not flaw:
        try:
            kind = kind_of(name)
        except UnreadableDocument as error:
            flaw = str(error)
    return FolderEntry(_shown(name), kind, status.st_size, "" if flaw else signature(status), flaw)


def _flaw(name: str, status: os.stat_result) -> str:
    if stat.S_ISLNK(status.st_mode):
        return _REASONS[errno.ELOOP]
    if not _is_shown(name):
        return "its name, shown escaped, is not UTF-8 or holds control characters"
    if stat.S_ISDIR(status.st_mode) or not stat.S_ISREG(status.st_mode):
        return "a pipe, socket or device" if not stat.S_ISDIR(status.st_mode) else "a folder"
    if status.st_size > MAX_FILE_BYTES:
        return f"it has {status.st_size} bytes; at most {MAX_FILE_BYTES} are read"
    return ""


def _is_shown(name: str) -> bool:
    return not any(unicodedata.category(char) in _UNSHOWN for char in name)


def _shown(name: str) -> str:
    if _is_shown(name):
        return name
    return "".join(
        char if _is_shown(char) else ascii(char)[1:-1] for char in os.fsencode(name).decode("utf-8", "backslashreplace")
    )


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno is not None:
        return _REASONS.get(error.errno, os.strerror(error.errno))
    return "its name cannot be used"
