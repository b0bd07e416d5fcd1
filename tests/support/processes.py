"""What a test needs to know of real processes."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.until import until


def is_alive(pid: int) -> bool:
    """True for a process that runs; a zombie that nobody reaped is dead."""
    return _state(Path(f"/proc/{pid}")) not in ("Z", "")


def _state(process: Path) -> str:
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # gone before the file was opened, or while it was read
        return ""


def stop(pid: int) -> None:
    """Send SIGSTOP, and wait until each thread stands still: until then a busy machine lets some of them go on."""
    os.kill(pid, signal.SIGSTOP)
    until(lambda: _runs_no_thread(pid), 10, f"process {pid} stands still")


def _runs_no_thread(pid: int) -> bool:
    return {_state(thread) for thread in Path(f"/proc/{pid}/task").glob("*")} <= {"T", "Z", ""}


def looping(setup: str = "", *, says: str = "up") -> tuple[str, ...]:
    """The command line of a child that says a word and then lives until a signal ends it."""
    return (sys.executable, "-c", f"import signal\n{setup}\nprint({says!r}, flush=True)\nwhile True: signal.pause()")


def failing(status: int) -> tuple[str, ...]:
    """The command line of a child that says it fails, and does."""
    return (sys.executable, "-c", f"import sys; print('about to fail', flush=True); sys.exit({status})")


@contextmanager
def killed_at_the_end(pid: int) -> Iterator[None]:
    """Leave nothing running, whatever the test found out."""
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
