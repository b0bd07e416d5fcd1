"""How the embedded server is reached: by a password and a socket in the home, or, if that path is too long, elsewhere.

The system takes no socket path over 107 bytes. `loom up` then makes a folder with a name that nobody can foresee in the
temporary directory, and keeps it as a link in the home, where all that run on this home find it. It is used only while
it is a real directory of the home's owner that nobody else may enter: were it removed and made by somebody else, every
process would talk to a server of theirs.
"""

import contextlib
import os
import stat
import tempfile
from pathlib import Path

from loom_worker.core.errors import BadSettings

LINK = "socket"
"""In the home: a symbolic link to the folder."""
LONGEST_BYTES = 100
"""Of a socket's path; the system takes 107 (Linux), 103 (macOS)."""
_NAME = "valkey.sock"
VALKEY_CONF = "valkey.conf"
"""In the home: the server's configuration file, whose only line is ``requirepass`` and the password."""


def embedded_socket(home: Path) -> Path:
    """Where the embedded server of this home listens; too long to listen at while `loom up` has made no folder."""
    socket = home / _NAME
    folder = None if _fits(socket) else _recorded(home)
    return folder / _NAME if folder else socket


def embedded_url(home: Path) -> str:
    """The same as a URL for redis-py, with the password; without one while none was made, or it cannot be read."""
    password = ""
    with contextlib.suppress(OSError):
        password = (home / VALKEY_CONF).read_text(encoding="ascii").strip().removeprefix("requirepass ")
    return f"unix://{f':{password}@' if password else ''}{embedded_socket(home)}"


def ensure(home: Path) -> Path:
    """Where the embedded server is to listen; creates the folder. Only while the home is locked.

    Raises:
        BadSettings: somebody else has the folder, or may enter it.
        OSError: it cannot be made.
    """
    socket = home / _NAME
    if _fits(socket):
        return socket
    folder = _recorded(home)
    if folder is None or not os.path.lexists(folder):
        folder = _make(home)
    check(home)
    return folder / _NAME


def check(home: Path) -> None:
    """Refuse a folder that is not the home's owner's alone; none at all, or none yet, is none to refuse.

    Raises:
        BadSettings: the text names the folder, and what to do.
    """
    folder = None if _fits(home / _NAME) else _recorded(home)
    if folder is None or (why := _flaw(folder, owner=os.lstat(home / LINK).st_uid)) is None:
        return
    raise BadSettings(
        f"LOOM_HOME={home}: {folder}, for the socket of the embedded server, {why}; stop Loom, remove {home / LINK} and"
        " start again, which makes another one, or choose a shorter LOOM_HOME"
    )


def discard(home: Path) -> None:
    """Remove the folder, if it is empty, and the link, after the server has ended."""
    folder = _recorded(home)
    if folder is not None:
        with contextlib.suppress(OSError):
            folder.rmdir()
            (home / LINK).unlink()


def _fits(socket: Path) -> bool:
    return len(os.fsencode(socket)) <= LONGEST_BYTES


def _recorded(home: Path) -> Path | None:
    try:
        return (home / LINK).readlink()
    except OSError:
        return None


def _make(home: Path) -> Path:
    places = (tempfile.gettempdir(), "/tmp")  # noqa: S108  # mkdtemp makes a folder of a new name, for this user alone
    place = next((place for place in places if _fits(Path(place) / "loom-01234567" / _NAME)), places[-1])
    folder = Path(tempfile.mkdtemp(prefix="loom-", dir=place))
    fresh = home / f"{LINK}.new"
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(folder)
    fresh.replace(home / LINK)
    return folder


def _flaw(folder: Path, *, owner: int) -> str | None:
    try:
        found = os.lstat(folder)
    except FileNotFoundError:
        return None
    if not stat.S_ISDIR(found.st_mode):
        return "is no directory"
    if found.st_uid != owner:
        return f"belongs to another user (uid {found.st_uid})"
    return "may be used by others" if found.st_mode & 0o077 else None
