"""What this process shows of itself to others of the same user.

``/proc/<pid>/environ`` is the memory that the process was started with: removing a variable from ``os.environ`` changes
nothing there. So the values are overwritten in that memory, and the kernel is asked to keep other processes of the same
user out of ``environ``, ``mem``, ``maps`` and ``fd``.
"""

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

_PR_SET_DUMPABLE = 4
_ARG_START, _ENV_START = 48, 50
"""Fields of /proc/<pid>/stat as proc(5) counts them, from 1; each is followed by that of the end."""


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
    block = _initial_block(_ENV_START)
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


def show_as(argv: Sequence[str]) -> None:
    """Let `ps` show this command line, as far as there is room in the one that the process was started with."""
    block = _initial_block(_ARG_START)
    if block is None:
        return
    begin, size = block
    text = b"\0".join(map(os.fsencode, argv))[: size - 1]
    ctypes.memset(begin, 0, size)
    ctypes.memmove(begin, text, len(text))


def _initial_block(field: int) -> tuple[int, int] | None:
    """Where what the process was started with lies in its memory: address and size in bytes."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        # The second field is the program's name in brackets, and may hold blanks.
        fields = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        begin, end = int(fields[field - 3]), int(fields[field + 1 - 3])
        return (begin, end - begin) if 0 < begin < end else None
    return None
