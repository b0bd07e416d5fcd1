"""Files derived from blobs, such as a database of its rows. They can be made again, and have a bound of their own.

A file's name holds its checksum, so a damaged one is never used. Files age by their last use.
"""

import contextlib
import hashlib
import logging
import os
import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from loom_worker.blobs.tier import digits

log = logging.getLogger(__name__)

_NAME = re.compile(r"([0-9a-f]{32})-([0-9a-f]{64})\.db")


class DerivedFiles:
    """A flat folder of derived files, mode 0700."""

    def __init__(self, folder: Path, *, most_bytes: int) -> None:
        """Args: most_bytes: for all files together; when one is added, those used least recently go."""
        self._folder = folder
        self._most_bytes = most_bytes

    def find(self, ref: str) -> Path | None:
        """The derived file of a reference, complete and checked; None if there is none."""
        for entry in self._entries():
            name = _NAME.fullmatch(entry.name)
            if name is None or name[1] != digits(ref):
                continue
            path = Path(entry.path)
            with contextlib.suppress(FileNotFoundError):
                if _checksum(path) == name[2]:
                    os.utime(path)
                    return path
                log.error("the file derived from %s is damaged; it is made again", ref)
                path.unlink()
        return None

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A path in the folder to write to; a file that is left there at the end is removed.

        Raises:
            OSError: the folder cannot be created.
        """
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder.chmod(0o700)
        path = self._folder / f"{secrets.token_hex(16)}.new"
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)

    def adopt(self, ref: str, scratch: Path) -> None:
        """Make a scratch file the derived file of a reference; do nothing if it is too large."""
        size_bytes = scratch.stat().st_size
        if size_bytes <= self._most_bytes:
            self._trim_to(self._most_bytes - size_bytes)
            scratch.replace(self._folder / f"{digits(ref)}-{_checksum(scratch)}.db")

    def drop(self, refs: Iterable[str]) -> None:
        gone = {digits(ref) for ref in refs}
        for entry in self._entries() if gone else ():
            if entry.name[:32] in gone:
                Path(entry.path).unlink(missing_ok=True)

    def expire(self, *, before_s: float) -> None:
        """Remove what was last used before a moment, in seconds since 1970, and what a dying process left."""
        for entry in self._entries():
            with contextlib.suppress(FileNotFoundError):
                if entry.stat(follow_symlinks=False).st_mtime < before_s:
                    Path(entry.path).unlink()

    def _trim_to(self, most_bytes: int) -> None:
        files = []
        for entry in self._entries():
            if not _NAME.fullmatch(entry.name):
                continue  # a scratch file, soon adopted or removed
            with contextlib.suppress(FileNotFoundError):
                stat = entry.stat(follow_symlinks=False)
                files.append((stat.st_mtime, stat.st_size, entry.path))
        over = sum(size for _, size, _ in files) - most_bytes
        for _, size_bytes, path in sorted(files):
            if over <= 0:
                return
            Path(path).unlink(missing_ok=True)
            over -= size_bytes

    def _entries(self) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self._folder) as entries:
                return list(entries)
        except FileNotFoundError:
            return []


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
