"""A command that ends with its parent: ``python child.py LIFELINE COMMAND…``.

LIFELINE is the number of a pipe's reading end. Its writing end closes when the starter lets go of it or is killed,
in whatever way; then the command and all it started are ended: SIGTERM, and SIGKILL half a second later, or SIGKILL
at once if a byte came through the pipe. What the command leaves behind when it ends by itself is killed, too.
Standard library only: it is run as a file.
"""

import contextlib
import os
import signal
import sys
import threading
import time

GRACE_S = 0.5
"""Between SIGTERM and SIGKILL."""
NOT_STARTED = 127
"""Exit status when the command could not be started, as shells have it."""


def main(lifeline: int, command: list[str]) -> int:
    """Run the command; returns its exit status, 128 + n for signal n."""
    pid = os.fork()
    if pid == 0:
        _become(lifeline, command)
    with contextlib.suppress(OSError):  # the child may have done it, or be gone
        os.setpgid(pid, pid)
    for inherited in (0, 1, 2):  # as long as we hold them, nobody would see that the command closed its own
        os.close(inherited)
    threading.Thread(target=_end_with_our_starter, args=(lifeline, pid), daemon=True).start()
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # not reaped yet: its number cannot be another's by now
    _signal(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return status if status >= 0 else 128 - status


def _become(lifeline: int, command: list[str]) -> None:
    try:
        os.setpgid(0, 0)
        os.close(lifeline)
        os.execvp(command[0], command)  # noqa: S606  # no shell takes part; the command is the operator's own
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode("utf-8", "replace"))
    finally:
        os._exit(NOT_STARTED)


def _end_with_our_starter(lifeline: int, pid: int) -> None:
    if not os.read(lifeline, 1):
        _signal(pid, signal.SIGTERM)
        time.sleep(GRACE_S)
    _signal(pid, signal.SIGKILL)


def _signal(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS says the latter of a group of zombies
        os.killpg(group, number)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
