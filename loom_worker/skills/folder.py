"""Reading below a folder without being led out of it: links are not followed, pipes not waited for, devices not opened.

Each part of a path is opened from the descriptor of the part above it: if a folder is swapped for a link while it is
read, that is an error, and never another file is read.
"""

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from loom_worker.core.text import is_plain

MAX_FILES = 200
"""Most files of a skill that are listed; others can be read as well."""
MAX_FOLDERS = 50
"""Most folders of a skill that are searched for the list."""
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_LINK = "a link, which is not followed"


@dataclass(frozen=True, slots=True)
class SkillListing:
    """What lies in a folder, hidden files and links left out."""

    files: tuple[str, ...]
    """Regular files, as paths within the folder, sorted."""
    folders: tuple[str, ...]
    """The folders that were searched, the folder itself (empty text) first."""


def is_name(part: str) -> bool:
    """True for a name that a listed file or folder may have: plain, not hidden, and no separator in it."""
    return bool(part) and part[0] != "." and not set(part) & {"/", "\\"} and is_plain(part)


@contextmanager
def opened(top: Path, parts: Sequence[str]) -> Iterator[int]:
    """A folder below ``top``, as a descriptor.

    The path of top may hold links, as its owner named it; no part may be one. OSError: it is not there, no folder, a
    link, or may not be read; ``strerror`` says which.
    """
    fd = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts:
            below = _enter(part, fd)
            os.close(fd)
            fd = below
        yield fd
    finally:
        os.close(fd)


def read(top: Path, parts: Sequence[str], *, most_bytes: int) -> bytes:
    """Read a regular file below ``top``.

    Raises:
        OSError: as ``opened``; also for what is no regular file, and EFBIG for one of more than ``most_bytes``.
    """
    with opened(top, parts[:-1]) as folder_fd, os.fdopen(_open_regular(_checked(parts[-1]), folder_fd), "rb") as file:
        raw = file.read(most_bytes + 1)
    if len(raw) > most_bytes:
        raise OSError(errno.EFBIG, f"larger than {most_bytes} bytes")
    return raw


def listed(top: Path, parts: Sequence[str]) -> SkillListing:
    """List a folder below ``top``, and what is below that; OSError: as ``opened``."""
    files: list[str] = []
    searched: list[str] = []
    with opened(top, parts) as fd:
        for path, folders, names, at in os.fwalk(".", dir_fd=fd, follow_symlinks=False):
            prefix = path.removeprefix(".").removeprefix("/")
            searched.append(prefix)
            folders[:] = sorted(filter(is_name, folders))
            files += [os.path.join(prefix, name) for name in sorted(filter(is_name, names)) if _is_regular(name, at)]
            if len(files) >= MAX_FILES or len(searched) >= MAX_FOLDERS:
                break
    return SkillListing(tuple(sorted(files[:MAX_FILES])), tuple(searched))


def _checked(part: str) -> str:
    if part in ("", ".", "..") or set(part) & {"/", "\0"}:
        raise OSError(errno.EINVAL, "no name of a file")
    return part


def _enter(part: str, fd: int) -> int:
    try:
        return os.open(_checked(part), _FLAGS | os.O_DIRECTORY, dir_fd=fd)
    except NotADirectoryError as error:  # so Linux calls a link, too, where a folder is asked for
        if stat.S_ISLNK(os.stat(part, dir_fd=fd, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, _LINK) from error
        raise


def _open_regular(name: str, folder_fd: int) -> int:
    """Look first, as opening a device may do something; then open without waiting for a pipe, and look again."""
    _check_regular(os.stat(name, dir_fd=folder_fd, follow_symlinks=False).st_mode)
    fd = os.open(name, _FLAGS | os.O_NONBLOCK | os.O_NOCTTY, dir_fd=folder_fd)
    try:
        _check_regular(os.fstat(fd).st_mode)
    except OSError:
        os.close(fd)
        raise
    return fd


def _check_regular(mode: int) -> None:
    if stat.S_ISLNK(mode):
        raise OSError(errno.ELOOP, _LINK)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "a folder")
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "no regular file")


def _is_regular(name: str, folder_fd: int) -> bool:
    try:
        return stat.S_ISREG(os.stat(name, dir_fd=folder_fd, follow_symlinks=False).st_mode)
    except OSError:
        return False
