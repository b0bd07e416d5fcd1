"""The disk tier: a file for each reference, under the 32 digits that nobody can guess, in a folder of ours alone."""

import contextlib
import errno
import logging
import os
import re
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path

from loom_worker.blobs.faults import DiskFull, Unwritable
from loom_worker.blobs.tier import digits

log = logging.getLogger(__name__)

SHELVES = 256
"""Folders of the first level; each has as many of the second."""
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
_NAME = re.compile(r"([0-9a-f]{32})(\.[0-9a-f]+\.new)?")


class Disk:
    """A folder, which may be shared by all processes and, over a network, by all machines of a system."""

    def __init__(self, folder: Path) -> None:
        """Nothing is made before the first result is kept."""
        self._folder = folder

    def put(self, ref: str, data: bytes) -> None:
        """Write a file under another name, then rename it: nobody ever sees half of it.

        It is not forced to the disk: what a power loss leaves of it is found out by its checksum.

        Raises:
            DiskFull: there is no room on the disk.
            Unwritable: the folder cannot be written.
        """
        file = self._file(ref)
        new = file.with_name(f"{file.name}.{secrets.token_hex(8)}.new")
        try:
            self._make(file.parent)
            _write(new, data)
            new.replace(file)
        except OSError as error:
            with contextlib.suppress(OSError):
                new.unlink()
            raise _in_our_words(error, self._folder) from error

    def get(self, ref: str, *, most_bytes: int) -> bytes | None:
        """The bytes; None if there is no file, or it cannot be read."""
        try:
            with self._file(ref).open("rb", buffering=0) as file:
                return _read(file.fileno(), most_bytes + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            log.error("%s cannot be read: %s", ref, error)
            return None

    def drop(self, refs: Iterable[str]) -> None:
        """Remove files; one that cannot be removed is left to the scan for strays."""
        for ref in refs:
            try:
                self._file(ref).unlink(missing_ok=True)
            except OSError as error:
                log.warning("%s cannot be removed: %s", ref, error)

    def shelf(self, number: int, *, before_s: float) -> frozenset[str]:
        """References of the files on one of SHELVES that were written before a moment, in seconds since 1970.

        Files that a dying process left half written are removed at once, if they are as old.
        """
        found = set()
        for entry in _entries(self._folder / f"{number % SHELVES:02x}"):
            name = _NAME.fullmatch(entry.name)
            if name is None or not _is_older(entry, before_s):
                continue
            if name[2]:
                Path(entry.path).unlink(missing_ok=True)
            else:
                found.add(f"ref_{name[1]}")
        return frozenset(found)

    def _file(self, ref: str) -> Path:
        name = digits(ref)
        return self._folder / name[:2] / name[2:4] / name

    def _make(self, leaf: Path) -> None:
        if leaf.is_dir():
            return
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder.chmod(0o700)  # whoever made it, and with whatever mask
        leaf.mkdir(mode=0o700, parents=True, exist_ok=True)


def _write(file: Path, data: bytes) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb", buffering=0) as content:
        rest = memoryview(data)
        while rest:  # a write to a disk that gets full may take a part only, and tells with the next
            rest = rest[content.write(rest) :]


def _read(descriptor: int, most_bytes: int) -> bytes:
    parts, left = [], most_bytes
    while left and (part := os.read(descriptor, min(left, 1 << 20))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _entries(shelf: Path) -> Iterator[os.DirEntry[str]]:
    """Files two levels down; a folder that is gone, or none, has none."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        leaves = [entry.path for entry in os.scandir(shelf) if entry.is_dir(follow_symlinks=False)]
        for leaf in leaves:
            yield from os.scandir(leaf)


def _is_older(entry: os.DirEntry[str], before_s: float) -> bool:
    try:
        return entry.stat(follow_symlinks=False).st_mtime < before_s
    except FileNotFoundError:
        return False


def _in_our_words(error: OSError, folder: Path) -> Unwritable:
    log.error("%s cannot be written: %s", folder, error)
    if error.errno in _NO_ROOM:
        return DiskFull("the disk that keeps large results is full")
    return Unwritable("the folder that keeps large results cannot be written")
