"""The disk tier: a file for each reference, named by its 32 unguessable digits, in a folder that only we can read."""

import contextlib
import errno
import logging
import os
import re
import secrets
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO

from loom_worker.blobs.tier import DiskFull, UnwritableBlob, digits

log = logging.getLogger(__name__)

FOLDERS = 256
"""Folders of the first level; each has as many of the second."""
PIECE_BYTES = 1 << 20
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
_NAME = re.compile(r"([0-9a-f]{32})(\.[0-9a-f]+\.new)?")


class DiskTier:
    """A folder that all processes, and over a network file system all machines, may share."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, ref: str, data: bytes | BinaryIO) -> None:
        """Write a file under another name, then rename it, so nobody ever sees half of it.

        It is not synced to the disk: its checksum shows if a power loss damaged it.

        Raises:
            DiskFull: the disk is full.
            UnwritableBlob: the folder cannot be written.
        """
        file = self._file(ref)
        new = file.with_name(f"{file.name}.{secrets.token_hex(8)}.new")
        try:
            if not file.parent.is_dir():
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._folder.chmod(0o700)  # whatever created it, with any umask
                file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write(new, data)
            new.replace(file)
        except OSError as error:
            with contextlib.suppress(OSError):
                new.unlink()
            log.error("%s cannot be written: %s", self._folder, error)
            if error.errno in _NO_ROOM:
                raise DiskFull("the disk that keeps large results is full") from error
            raise UnwritableBlob("the folder that keeps large results cannot be written") from error

    def get(self, ref: str, *, most_bytes: int) -> bytes | None:
        """The bytes; None if there is no file, or it cannot be read."""
        try:
            with self._file(ref).open("rb", buffering=0) as file:
                parts, left = [], most_bytes + 1
                while left and (part := os.read(file.fileno(), min(left, PIECE_BYTES))):
                    parts.append(part)
                    left -= len(part)
                return b"".join(parts)
        except FileNotFoundError:
            return None
        except OSError as error:
            log.error("%s cannot be read: %s", ref, error)
            return None

    def drop(self, refs: Iterable[str]) -> None:
        """Remove files; one that cannot be removed is left to the scan for files without a row."""
        for ref in refs:
            try:
                self._file(ref).unlink(missing_ok=True)
            except OSError as error:
                log.warning("%s cannot be removed: %s", ref, error)

    def refs_in(self, folder: int, *, before_s: float) -> frozenset[str]:
        """References of the files in one of FOLDERS that were written before a moment, in seconds since 1970.

        Files as old that a dying process left half written are removed at once.
        """
        found = set()
        for entry in _entries(self._folder / f"{folder % FOLDERS:02x}"):
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


def _write(file: Path, data: bytes | BinaryIO) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb", buffering=0) as content:
        for piece in [data] if isinstance(data, bytes) else iter(partial(data.read, PIECE_BYTES), b""):
            rest = memoryview(piece)
            while rest:  # a write to a disk that gets full may take only a part; the next one then fails
                rest = rest[content.write(rest) :]


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Files one level further down; none if the folder does not exist."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        leaves = [entry.path for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
        for leaf in leaves:
            yield from os.scandir(leaf)


def _is_older(entry: os.DirEntry[str], before_s: float) -> bool:
    try:
        return entry.stat(follow_symlinks=False).st_mtime < before_s
    except FileNotFoundError:
        return False
