"""One log file for each process, rotated at its start and when it has grown."""

import contextlib
import os
import shutil
from pathlib import Path

ROTATE_AT_BYTES = 10 * 1024 * 1024
KEPT = 9
"""Older files of a log: ``name.log.1`` is the youngest. With 3, four restarts removed the log of a crash."""
TAIL_BYTES = 64 * 1024


def open_log(path: Path) -> int:
    """Put the last run's log aside; returns a descriptor for this run's, which the caller closes."""
    # Where nothing can be put aside, this run's log goes on behind the last one's.
    with contextlib.suppress(OSError):
        if path.stat().st_size:
            _shift(path)
            path.rename(_older(path, 1))
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def reopen_log(path: Path) -> int:
    """A descriptor that goes on with the log of this run, for a process that is started again."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def rotate_if_large(path: Path, *, limit_bytes: int = ROTATE_AT_BYTES) -> None:
    """Copy a log that has grown over the limit aside and empty it.

    Its writer keeps the descriptor: it appends (O_APPEND), so it goes on at the new start. Lines written between
    copy and cut are lost; a pipe through the supervisor would lose more when the supervisor is killed.

    Raises:
        OSError: the disk has no room for the copy; nothing was changed.
    """
    if not path.exists() or path.stat().st_size <= limit_bytes:
        return
    copy = path.with_name(f"{path.name}.copy")
    try:
        shutil.copyfile(path, copy)
    except OSError:
        # The older ones stay where they are: shifted with every try, they would soon be gone.
        copy.unlink(missing_ok=True)
        raise
    _shift(path)
    copy.replace(_older(path, 1))
    os.truncate(path, 0)


def tail(path: Path, *, lines: int = 15) -> str:
    """The last lines of a log, empty if there is none."""
    if not path.exists():
        return ""
    with path.open("rb") as log:
        log.seek(max(path.stat().st_size - TAIL_BYTES, 0))
        text = log.read().decode(errors="replace")
    return "\n".join(text.splitlines()[-lines:])


def _shift(path: Path) -> None:
    for age in range(KEPT, 1, -1):
        if _older(path, age - 1).exists():
            _older(path, age - 1).replace(_older(path, age))


def _older(path: Path, age: int) -> Path:
    return path.with_name(f"{path.name}.{age}")
