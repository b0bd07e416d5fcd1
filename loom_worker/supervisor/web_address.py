"""Where the web that serves a home can be reached, also when it was started by itself and not by `loom up`."""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loom_worker.supervisor import home

FILE = "web.url"
_PATIENCE_S = 0.5


@contextmanager
def announced(directory: Path, url: str) -> Iterator[None]:
    """Let the commands that run on this home find the web at this URL for as long as the ``with`` lasts.

    The file is believed only while it is locked, and the kernel unlocks it when this process ends, however it ends. A
    second web on the same home, or a home that cannot be written, is served all the same, and not found. `loom up`
    tells of its web itself.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            if not home.is_held(directory):
                stack.callback(os.close, _announcing(directory, url))
        yield


def url_of(directory: Path) -> str | None:
    """Where Loom serves this home: as `loom up` says, else as a web of its own does; None if neither runs."""
    state = home.running(directory)
    return state.url if state else _announced(directory)


def _announcing(directory: Path, url: str) -> int:
    handle = os.open(directory / FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if _locked(handle):
        os.ftruncate(handle, 0)
        os.pwrite(handle, url.encode(), 0)
    return handle


def _announced(directory: Path) -> str | None:
    try:
        handle = os.open(directory / FILE, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(handle, 4096, 0).decode(errors="replace") or None
    finally:
        os.close(handle)
    return None


def _locked(handle: int) -> bool:
    """Take the lock; commands that look whether it is free hold it for a moment."""
    give_up_at = time.monotonic() + _PATIENCE_S
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= give_up_at:
                return False
            time.sleep(0.02)
        else:
            return True
