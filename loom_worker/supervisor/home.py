"""The data directory: its lock, its state file, its secrets, where the web is that serves it, and how to stop it."""

import base64
import contextlib
import errno
import fcntl
import json
import os
import secrets
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from loom_worker.core.errors import BadSettings, Conflict, LoomError
from loom_worker.core.isolation.home_secrets import Secret, kept

LOCK = "loom.lock"
STATE = "up.json"
LOGS = "logs"
WEB_URL = "web.url"
"""Where a web is that was started by itself, and not by `loom up`."""
PROBE_BYTES = 1024 * 1024
"""Bytes of free disk, without which nothing is started. A first start writes 6 MB, and says itself if it cannot."""
_LOCK_PATIENCE_S = 0.5


class NoRoom(LoomError):
    """The disk of the home is full; the text says which and what to do."""


@dataclass(frozen=True, slots=True)
class State:
    """What `loom up` records for other commands, in ``<home>/up.json``."""

    pid: int
    """Process id of the supervisor."""
    url: str
    flower_url: str
    started: str
    """RFC 3339, UTC."""
    children: dict[str, int] = field(default_factory=dict)
    """Process name to pid, of those that run."""
    failing: dict[str, int] = field(default_factory=dict)
    """Process name to deaths in a row, of those that do not stay up."""


def prepare(home: Path) -> None:
    """Make the directory and its logs, readable by this user alone.

    Raises:
        BadSettings: it cannot be made, or belongs to somebody else.
        NoRoom: its disk is full.
    """
    with usable(home):
        for folder in (home, home / LOGS):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            folder.chmod(0o700)


@contextmanager
def usable(home: Path) -> Iterator[None]:
    """Say in one line why the home cannot be used, should something within fail for that.

    Raises:
        BadSettings: it cannot be made, read or written.
        NoRoom: its disk is full.
    """
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise NoRoom(
                f"LOOM_HOME={home}: its disk is full ({error.strerror}); make room (`df -h {home}`), or set LOOM_HOME"
                " to a folder on another disk"
            ) from error
        raise BadSettings(f"LOOM_HOME={home} cannot be used ({error.strerror}); name another folder") from error


def probe(home: Path) -> None:
    """Write, and remove, as much as a start needs at least.

    Raises:
        OSError: there is no room for it.
    """
    file = home / "probe"
    try:
        file.write_bytes(b"\0" * PROBE_BYTES)
    finally:
        file.unlink(missing_ok=True)


@contextmanager
def locked(home: Path) -> Iterator[None]:
    """Hold the home; the kernel lets go of it when this process ends, however it ends.

    The state file is gone at the begin and at the end: one that a killed supervisor left names a pid that may be
    anybody's by now, and while the home is held it would be believed.

    Raises:
        Conflict: another supervisor holds it; the text names its pid and URL.
        BadSettings, NoRoom: the lock cannot be made.
    """
    with usable(home):
        handle = os.open(home / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not _take(handle):
            state = read_state(home)
            where = f" (pid {state.pid}, {state.url})" if state else ""
            raise Conflict(f"Loom already runs on {home}{where}; stop it with `loom stop`, or choose another LOOM_HOME")
        forget_state(home)
        try:
            yield
        finally:
            forget_state(home)
    finally:
        os.close(handle)


def _take(handle: int) -> bool:
    """Take a lock; commands hold it for a moment to see whether it is free, so try for a little longer."""
    give_up_at = time.monotonic() + _LOCK_PATIENCE_S
    while not _try(handle):
        if time.monotonic() >= give_up_at:
            return False
        time.sleep(0.02)
    return True


def _try(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_held(home: Path) -> bool:
    """True while a supervisor runs on this home."""
    try:
        handle = os.open(home / LOCK, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not _try(handle)
    finally:
        os.close(handle)


def write_state(home: Path, state: State) -> None:
    """Replace the state file in one step, so that no reader sees half of it.

    Raises:
        OSError: it cannot be written; the old one stays.
    """
    fresh = home / f"{STATE}.new"
    try:
        fresh.write_text(json.dumps(asdict(state), indent=2) + "\n", encoding="utf-8")
        fresh.chmod(0o600)
        fresh.replace(home / STATE)
    except OSError:
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise


def forget_state(home: Path) -> None:
    """Remove the state file; one that cannot be removed is known to be stale by the lock."""
    with contextlib.suppress(OSError):
        (home / STATE).unlink(missing_ok=True)


def read_state(home: Path) -> State | None:
    """The state file's content, None if there is none or it cannot be read; ask ``is_held`` whether it is stale."""
    try:
        return State(**json.loads((home / STATE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def running(home: Path) -> State | None:
    """The state of the supervisor that runs on this home; None if none does, or has not written it yet."""
    return read_state(home) if is_held(home) else None


@contextmanager
def announced(directory: Path, url: str) -> Iterator[None]:
    """Let the commands that run on this home find the web at this URL for as long as the ``with`` lasts.

    The file is believed only while it is locked, and the kernel unlocks it when this process ends, however it ends. A
    second web on the same home, or a home that cannot be written, is served all the same, and not found. `loom up`
    tells of its web itself.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            _announce(directory, url, stack)
        yield


def _announce(directory: Path, url: str, opened: contextlib.ExitStack) -> None:
    if is_held(directory):
        return
    handle = os.open(directory / WEB_URL, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    opened.callback(os.close, handle)
    if _take(handle):
        os.ftruncate(handle, 0)
        os.pwrite(handle, url.encode(), 0)


def url_of(directory: Path) -> str | None:
    """Where Loom serves this home: as `loom up` says, else as a web of its own does; None if neither runs."""
    if state := running(directory):
        return state.url
    try:
        handle = os.open(directory / WEB_URL, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(handle, 4096, 0).decode(errors="replace") or None
    finally:
        os.close(handle)
    return None


def flower_password(home: Path) -> Secret:
    """Flower's password, made at the first call and kept (0600)."""
    return kept(home / "flower.password", secrets.token_urlsafe(18))


def webhook_secret(home: Path) -> Secret:
    """The default webhook secret, ``whsec_`` and 32 random bytes in base64, made at the first call and kept (0600)."""
    return kept(home / "webhook.secret", "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode())


def stop(directory: Path, *, patience_s: float = 60.0) -> bool:
    """End the supervisor that runs on this home and wait for it; False if none runs.

    Raises:
        LoomError: it still runs after ``patience_s``.
    """
    give_up_at = time.monotonic() + patience_s
    asked: int | None = None
    was_held = False
    while is_held(directory):
        was_held = True
        # One that only just starts has not yet said who it is.
        if asked is None and (state := running(directory)):
            asked = state.pid
            with contextlib.suppress(ProcessLookupError):  # it ended by itself just now
                os.kill(asked, signal.SIGTERM)
        if time.monotonic() > give_up_at:
            raise LoomError(f"Loom (pid {asked}) still runs after {patience_s:.0f} s; see {directory / LOGS}")
        time.sleep(0.1)
    return was_held
