"""What this process shows of itself to others of the same user.

``/proc/<pid>/environ`` is the memory that the process was started with: removing a variable from ``os.environ`` changes
nothing there. So the values are overwritten in that memory, and the kernel is asked to keep other processes of the same
user out of ``environ``, ``mem``, ``maps`` and ``fd``.
"""

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterable
from pathlib import Path

_PR_SET_DUMPABLE = 4
_ENV_START, _ENV_END = 50, 51
"""Fields of /proc/<pid>/stat as proc(5) counts them, from 1."""


def hide() -> bool:
    """Keep debuggers and other processes of this user out, and write no core dump; False where the kernel cannot.

    Linux: prctl(2), PR_SET_DUMPABLE. It is lost when the process executes another program, and kept by a fork. Root may
    still look.
    """
    if sys.platform != "linux":
        return False
    failed: int = ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    return not failed


def forget(names: Iterable[str]) -> None:
    """Take variables out of ``os.environ``, and overwrite them in the memory that /proc shows."""
    gone = [name for name in names if name in os.environ]
    overwrite(gone)
    for name in gone:
        del os.environ[name]


def overwrite(names: Iterable[str]) -> None:
    """Blank the values in the memory that /proc shows; ``os.environ`` keeps them, programs started later do not.

    C code that asks for such a variable later finds it empty. Does nothing where there is no /proc.
    """
    block = _initial_block()
    if block is None:
        return
    begin, size = block
    wanted = tuple(os.fsencode(name) + b"=" for name in names)
    offset = 0
    for entry in ctypes.string_at(begin, size).split(b"\0"):
        if entry.startswith(wanted):
            at = entry.index(b"=") + 1
            ctypes.memset(begin + offset + at, 0, len(entry) - at)
        offset += len(entry) + 1


def _initial_block() -> tuple[int, int] | None:
    """Where the environment lies that this process was started with: address and size in bytes."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        # The second field is the program's name in brackets, and may hold blanks.
        fields = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        begin, end = int(fields[_ENV_START - 3]), int(fields[_ENV_END - 3])
        return (begin, end - begin) if 0 < begin < end else None
    return None
