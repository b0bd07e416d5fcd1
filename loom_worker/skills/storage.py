"""Changing a workspace's folder of skills: one change at a time, each of them whole or not at all.

A folder is made under a hidden name and then gets its own, by one rename. A process that is killed leaves at most a
hidden folder, which no reader sees and the next change removes. Nothing that a link leads to is ever touched.
"""

import ctypes
import errno
import fcntl
import os
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Final, Literal

from loom_worker.core.errors import Conflict, LoomError, NotFound, Rejected
from loom_worker.core.text import one_line
from loom_worker.skills.folder import is_name, opened
from loom_worker.skills.index import MAX_SKILLS, SKILLS, is_workspace

STAGED: Final = ".staged-"
"""Prefix of the name of what is not in place yet, or not any more."""
ASIDE: Final = ".aside-"
"""Prefix of the name of a skill that is being replaced where two names cannot be swapped at once."""
_FOLDER_MODE, _FILE_MODE = 0o755, 0o644
"""As for files made by hand; nothing is executable, as Loom runs nothing of a skill."""
_RENAME_EXCHANGE = 2
"""Flag of Linux's renameat2: both names exist all the time."""

What = Literal["nothing", "folder", "link", "something else"]


class SkillStorage:
    """A workspace's folder of skills, locked against all other changes."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def what(self, name: str) -> What:
        """The kind of thing that has this name."""
        try:
            mode = os.stat(name, dir_fd=self.fd, follow_symlinks=False).st_mode
        except FileNotFoundError:
            return "nothing"
        return "folder" if stat.S_ISDIR(mode) else "link" if stat.S_ISLNK(mode) else "something else"

    def put(self, name: str, files: Mapping[str, bytes], *, may_replace: bool) -> bool:
        """Put a folder of these files in place; True if it took the place of another, or of a link.

        Raises:
            Conflict: the name is taken, or the workspace is full.
        """
        self._check_free(name, may_replace=may_replace)
        staged = STAGED + secrets.token_hex(8)
        try:
            os.mkdir(staged, 0o700, dir_fd=self.fd)
            self._write(staged, files)
            is_replaced = self._named(staged, name)
        finally:
            self._discard(staged)
        return is_replaced

    def put_link(self, name: str, source: str) -> None:
        """Put a link in place; ``source`` is as it is written into it."""
        self._check_free(name, may_replace=False)
        os.symlink(source, name, dir_fd=self.fd)

    def remove(self, name: str) -> None:
        """Remove a folder or a link, atomically for readers."""
        staged = STAGED + secrets.token_hex(8)
        os.rename(name, staged, src_dir_fd=self.fd, dst_dir_fd=self.fd)
        self._discard(staged)

    def swap(self, first: str, second: str) -> bool:
        """Swap two names at once; False if the system or the file system cannot."""
        rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
        if rename is None:
            return False
        if rename(self.fd, os.fsencode(first), self.fd, os.fsencode(second), ctypes.c_uint(_RENAME_EXCHANGE)) == 0:
            return True
        number = ctypes.get_errno()
        if number in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
            return False
        raise OSError(number, os.strerror(number))

    def clear(self) -> None:
        """Clear away what killed processes left, and put back what one of them had put aside."""
        for name in os.listdir(self.fd):
            if name.startswith(ASIDE) and self.what(name.removeprefix(ASIDE)) == "nothing":
                os.rename(name, name.removeprefix(ASIDE), src_dir_fd=self.fd, dst_dir_fd=self.fd)
            elif name.startswith((STAGED, ASIDE)):
                self._discard(name)

    def _check_free(self, name: str, *, may_replace: bool) -> None:
        what = self.what(name)
        if what == "nothing":
            if sum(not other.startswith(".") for other in os.listdir(self.fd)) >= MAX_SKILLS:
                raise Conflict(f"the workspace has {MAX_SKILLS} skills, and no more are read")
        elif what == "something else" or not may_replace:
            raise Conflict(f"{name} is there already, {'a ' * (what != 'something else')}{what}")

    def _write(self, staged: str, files: Mapping[str, bytes]) -> None:
        """Write the files below a folder that nobody else knows."""
        folders = {str(above) for path in files for above in PurePosixPath(path).parents} - {"."}
        for folder in sorted(folders):  # each after the one it lies in
            os.mkdir(f"{staged}/{folder}", dir_fd=self.fd)
            os.chmod(f"{staged}/{folder}", _FOLDER_MODE, dir_fd=self.fd)
        for path, content in sorted(files.items()):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(f"{staged}/{path}", flags, 0o600, dir_fd=self.fd), "wb") as file:
                file.write(content)
                os.fchmod(file.fileno(), _FILE_MODE)
        os.chmod(staged, _FOLDER_MODE, dir_fd=self.fd)

    def _named(self, staged: str, name: str) -> bool:
        """Give the staged folder its name; what had it is then called as the staged one was."""
        if self.what(name) == "nothing":
            os.rename(staged, name, src_dir_fd=self.fd, dst_dir_fd=self.fd)
            return False
        if self.swap(staged, name):
            return True
        aside = ASIDE + name
        os.rename(name, aside, src_dir_fd=self.fd, dst_dir_fd=self.fd)
        try:
            os.rename(staged, name, src_dir_fd=self.fd, dst_dir_fd=self.fd)
        except OSError:
            os.rename(aside, name, src_dir_fd=self.fd, dst_dir_fd=self.fd)
            raise
        self._discard(aside)
        return True

    def _discard(self, name: str) -> None:
        """Delete a folder with all it holds, or a link without what it leads to; nothing if neither is there."""
        with suppress(FileNotFoundError):
            if self.what(name) == "folder":
                shutil.rmtree(name, dir_fd=self.fd)
            else:
                os.unlink(name, dir_fd=self.fd)


@contextmanager
def locked(root: Path, workspace: str, *, is_made: bool = False) -> Iterator[SkillStorage]:
    """The workspace's folder, locked among processes and threads until the end; a killed process holds nothing.

    Args:
        is_made: make the folder if it is not there.

    Raises:
        Rejected: a workspace cannot be called so.
        NotFound: there is no such folder.
        LoomError: the file system refuses something.
    """
    check_workspace(workspace)
    try:
        if is_made:
            os.makedirs(root / workspace / SKILLS, exist_ok=True)
        with opened(root, (workspace, SKILLS)) as fd:
            fcntl.flock(fd, fcntl.LOCK_EX)  # goes with the descriptor
            storage = SkillStorage(fd)
            storage.clear()
            yield storage
    except FileNotFoundError as error:
        raise NotFound(f"the workspace {workspace} has no skills") from error
    except OSError as error:
        raise LoomError(f"{workspace}/{SKILLS}: {error.strerror}") from error


def check_workspace(name: str) -> None:
    """Raise Rejected for what is no name of a workspace."""
    if not is_workspace(name):
        raise Rejected(f"{one_line(name)!r}: a workspace has 1-64 letters, digits, '.', '_' and '-' in its name")


def check_skill(name: str) -> None:
    """Raise Rejected for what no skill's folder can be called."""
    if not is_name(name):
        raise Rejected(f"{one_line(name)!r}: no name of a skill")
