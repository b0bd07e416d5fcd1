"""Files that a process gives up reading and changing, by Landlock: no privilege needed, no way back, inherited.

Landlock knows no "all but these": it grants trees, and denies the rest. So everything next to a hidden file is granted,
folder by folder from the root down. In those folders themselves nothing can be made, renamed or removed, and what is
put there later cannot be read; in their other subfolders everything is granted. With its first rule Landlock also keeps
the process from looking into the memory and the environment of every process that it did not start itself.
https://docs.kernel.org/userspace-api/landlock.html
"""

import ctypes
import os
import stat
import struct
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""System calls; the same numbers on every architecture."""
_VERSION = 1
_RULE_PATH_BENEATH = 1
_WRITE_FILE, _READ_FILE, _TRUNCATE = 1 << 1, 1 << 2, 1 << 14
_CHANGE_FOLDER = sum(1 << bit for bit in range(4, 13))
"""Making and removing files of any kind, sockets and folders."""
_REFER = 1 << 13
"""Moving and linking files between folders. It is denied unless granted; the first version (Linux before 5.19) cannot
grant it, and there such a move fails as between two file systems."""
_SCOPE_SIGNAL = 1 << 1
"""Signals reach what the process has started, and nothing else."""
KNOWS_TRUNCATE, _KNOWS_SIGNALS = 3, 6
"""First versions that can deny them: Linux 6.2 and 6.12."""
_PR_SET_NO_NEW_PRIVS = 38


def version() -> int:
    """The version of the kernel's Landlock; 0 if it has none, or it is switched off."""
    if sys.platform != "linux":
        return 0
    found: int = _libc().syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION))
    return max(0, found)


def confine(hidden: Iterable[str], *, readable: Iterable[str] = (), writable: Iterable[str] = ()) -> bool:
    """Give up these files and folders, whether they exist yet or not, and signals; False if the kernel cannot do it.

    For the main thread, before there is another one. Names that lead to the same file by a link lead to nothing.

    Args:
        readable: what may be read though it lies in one of them; ``writable``: may be changed, too.
    """
    abi = version()
    if not abi:
        return False
    rights = _READ_FILE | _WRITE_FILE | _CHANGE_FOLDER
    rights |= (_REFER if abi > 1 else 0) | (_TRUNCATE if abi >= KNOWS_TRUNCATE else 0)
    attributes = struct.pack("=QQQ", rights, 0, _SCOPE_SIGNAL if abi >= _KNOWS_SIGNALS else 0)
    libc = _libc()
    ruleset = libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0))
    if ruleset < 0:
        return False
    try:
        for path in (*shown([Path(each) for each in hidden]), *writable):
            _grant(libc, ruleset, path, rights)
        for path in readable:
            _grant(libc, ruleset, path, _READ_FILE)
        # Without it only root may restrict itself; it makes setuid programs such as sudo start without their rights.
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        failed: int = libc.syscall(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))
        return not failed
    finally:
        os.close(ruleset)


def shown(hidden: Sequence[Path]) -> Iterator[str]:
    """The largest trees that hold none of the hidden paths."""
    paths = {os.path.realpath(path) for path in hidden}
    closed = {path for path in paths if paths.isdisjoint(map(str, Path(path).parents))}
    passed = {str(parent) for path in closed for parent in Path(path).parents}
    if not passed:
        yield "/"
    for folder in sorted(passed):
        yield from _siblings(folder, closed | passed)


def _siblings(folder: str, without: set[str]) -> Iterator[str]:
    try:
        with os.scandir(folder) as entries:
            found = [entry.path for entry in entries if not entry.is_symlink()]
    except OSError:  # not there yet, or not for us
        return
    yield from (path for path in found if path not in without)


def _grant(libc: ctypes.CDLL, ruleset: int, path: str, rights: int) -> None:
    try:
        handle = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:  # gone meanwhile, or not for us
        return
    try:
        is_folder = stat.S_ISDIR(os.fstat(handle).st_mode)
        granted = rights if is_folder else rights & (_READ_FILE | _WRITE_FILE | _TRUNCATE)
        rule = struct.pack("=Qi", granted, handle)
        libc.syscall(_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(_RULE_PATH_BENEATH), rule, ctypes.c_uint32(0))
    finally:
        os.close(handle)


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    return libc
