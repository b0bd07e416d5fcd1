"""Installs a skill again and again, each time in a process that dies at a later look at the file system.

Arguments: the workspaces' folder, the source, and ``new`` or ``replace``. Each process works in a workspace of its own
(w0, w1, …; with ``replace`` they must have the skill already). Prints how many of them died.
"""

import os
import signal
import sys
from pathlib import Path

from loom_worker.skills.install import install, package_from

EVENTS = (
    "open",
    "os.mkdir",
    "os.chmod",
    "os.rename",
    "os.remove",
    "os.rmdir",
    "os.listdir",
    "os.scandir",
    "ctypes.dlsym",
)


def main(root: Path, source: str, how: str) -> None:
    """Until a process lives to the end."""
    package = package_from(source)
    for n in range(200):
        pid = os.fork()
        if pid == 0:
            die_at(n)
            install(package, root, f"w{n}", may_replace=how == "replace")
            os._exit(0)
        if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != -signal.SIGKILL:
            print(n)  # noqa: T201  # the test reads it
            return


def die_at(n: int) -> None:
    """Let this process kill itself at its n-th event (from 0)."""
    left = [n]

    def hook(event: str, _: tuple[object, ...]) -> None:
        if event in EVENTS:
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1

    sys.addaudithook(hook)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
