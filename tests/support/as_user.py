"""Become another user and run a command: ``python as_user.py UID SPARE_FOLDER COMMAND…``, as root.

An interpreter below a folder that is closed to others, such as root's home, is bound into an open one in its place, in
a mount namespace of this process and its children: nothing changes for anybody else.
"""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
_CLONE_NEWNS = 0x20000


def main(uid: int, spare: Path, command: list[str]) -> None:
    """Never returns; raises OSError or CalledProcessError if it cannot be done here."""
    needed = {Path(sys.base_prefix).resolve(), Path(sys.prefix), ROOT}
    closed = {top: path for path in needed if (top := _closed(path)) is not None}
    if closed and ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    if closed:
        _mount("--make-rprivate", "/")
    for top, path in closed.items():
        _mount("--bind", path, spare)
        _mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", top)
        path.mkdir(parents=True)
        _mount("--bind", spare, path)
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    os.execv(command[0], command)


def _closed(path: Path) -> Path | None:
    """The first folder on the way that others cannot enter."""
    return next((each for each in [*reversed(path.parents), path] if not each.stat().st_mode & 0o001), None)


def _mount(*arguments: str | Path) -> None:
    subprocess.run(["mount", *map(str, arguments)], check=True)


if __name__ == "__main__":
    os.umask(0o022)
    main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
