"""Reading a folder that is to be installed or copied: regular files only, and no link is followed."""

import os
import stat
from pathlib import Path

from loom_worker.skills.folder import opened, read
from loom_worker.skills.package import MAX_FILE_BYTES, Bundle, Gathering, Unsafe, refused


def gathered(top: Path) -> Bundle:
    """The files of a folder with a SKILL.md; the path of the folder itself may hold links.

    Raises:
        Unsafe: with the reason; for a link in it, too, hard ones included: who made it chose what would be copied.
    """
    found = Gathering()
    try:
        with opened(top, ()) as fd:
            _walk(top, fd, found)
    except OSError as error:
        raise Unsafe(f"{error.strerror}") from error
    return found.bundle(folder=Path(os.path.abspath(top)).name)


def _walk(top: Path, fd: int, found: Gathering) -> None:
    for path, folders, names, at in os.fwalk(".", dir_fd=fd, follow_symlinks=False):
        prefix = path.removeprefix(".").removeprefix("/")
        folders[:] = [name for name in sorted(folders) if _is_folder(os.path.join(prefix, name), at, found)]
        for name in sorted(names):
            _take(top, os.path.join(prefix, name), at, found)


def _is_folder(path: str, at: int, found: Gathering) -> bool:
    """True for a folder to be looked into; a link to one is listed among folders, too."""
    if stat.S_ISLNK(os.stat(os.path.basename(path), dir_fd=at, follow_symlinks=False).st_mode):
        raise refused(path, "a link")
    found.folder(path)
    return not os.path.basename(path).startswith(".")


def _take(top: Path, path: str, at: int, found: Gathering) -> None:
    status = os.stat(os.path.basename(path), dir_fd=at, follow_symlinks=False)
    if stat.S_ISLNK(status.st_mode):
        raise refused(path, "a link")
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        raise refused(path, "no file of its own: a hard link, a pipe or a device")
    if found.wants(path, status.st_size):
        found.add(path, read(top, path.split("/"), most_bytes=MAX_FILE_BYTES))
