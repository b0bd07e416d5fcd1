"""One log file for each process: it is appended to over all starts, and rotated by size alone."""

import contextlib
import json
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

ROTATE_AT_BYTES = 10 * 1024 * 1024
KEPT = 3
"""Older files of a log: ``name.log.1`` is the youngest. So a process takes at most four times ROTATE_AT_BYTES, and what
it writes between two looks."""
TAIL_BYTES = 64 * 1024


def open_log(path: Path) -> int:
    """A descriptor that appends to the log, which the caller closes.

    A start moves no old log aside: people look for a crash after restarting, often more than once.
    """
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def note(path: Path, text: str, *, moment: datetime, as_json: bool) -> None:
    """Append a line of the supervisor's own, such as that the process starts here.

    Nothing is raised: on a full disk the process matters more than a line about it.
    """
    when = moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    line = f"--- {when} {text}"
    if as_json:
        line = json.dumps({"time": when, "level": "INFO", "logger": __name__, "message": text}, ensure_ascii=False)
    with contextlib.suppress(OSError):
        log = open_log(path)
        try:
            # What was killed may have stopped in the middle of a line.
            before = "\n" if _is_cut(path) else ""
            os.write(log, f"{before}{line}\n".encode())
        finally:
            os.close(log)


def rotate_if_large(path: Path, *, limit_bytes: int = ROTATE_AT_BYTES) -> None:
    """Copy a log that has grown over the limit aside and empty it.

    Its writer keeps the descriptor: it appends (O_APPEND), so it goes on at the new start. Lines written between
    copy and cut are lost; a pipe through the supervisor would lose more when the supervisor is killed. Without room
    for the copy all files stay as they are until there is some: a disk that is full gains nothing by losing a log.
    """
    if not path.exists() or path.stat().st_size <= limit_bytes:
        return
    copy = path.with_name(f"{path.name}.new")
    try:
        shutil.copyfile(path, copy)
        copy.chmod(0o600)
    except OSError:
        copy.unlink(missing_ok=True)
        return
    for age in range(KEPT, 1, -1):
        if older(path, age - 1).exists():
            older(path, age - 1).replace(older(path, age))
    copy.replace(older(path, 1))
    os.truncate(path, 0)


def tail(path: Path, *, lines: int = 15) -> str:
    """The last lines of a log, empty if there is none."""
    if not path.exists():
        return ""
    with path.open("rb") as log:
        log.seek(max(path.stat().st_size - TAIL_BYTES, 0))
        text = log.read().decode(errors="replace")
    return "\n".join(text.splitlines()[-lines:])


def _is_cut(path: Path) -> bool:
    with path.open("rb") as log:
        log.seek(max(path.stat().st_size - 1, 0))
        return log.read(1) not in (b"", b"\n")


def older(path: Path, age: int) -> Path:
    """The file to which a log was moved aside, 1 to KEPT rotations ago."""
    return path.with_name(f"{path.name}.{age}")
