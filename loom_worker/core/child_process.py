"""A command that dies with its parent: ``python child_process.py PARENT_PID COMMAND…``.

Run as a file, with the standard library only, before every process that Loom starts: SIGKILL leaves a parent no time
to stop its children, so the kernel does it.
"""

import os
import sys

ORPHANED = 125
"""Exit status when the parent was gone before the command could start."""
HAS_PDEATHSIG = sys.platform == "linux"
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_SIGKILL = 9


def main(parent_pid: int, command: list[str]) -> int:
    """Become the command, or stay and watch over it where the kernel cannot; returns its exit status."""
    if HAS_PDEATHSIG:
        die_with_parent()
    if os.getppid() != parent_pid:
        return ORPHANED
    if HAS_PDEATHSIG:
        os.execv(command[0], command)  # noqa: S606  # the command line is the supervisor's own, no shell takes part
    return watch(parent_pid, command)


def module_command(module: str, *flags: str) -> list[str]:
    """The command line that calls ``main()`` of one of Loom's modules; its own arguments begin at ``sys.argv[2]``.

    Loom's folder comes last on the module path, so that nothing in it can stand in for the standard library.

    Args:
        flags: of the interpreter, such as -I: ignore PYTHON* variables and the current folder.
    """
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # no pathlib: it takes 5 ms
    program = f"import sys; sys.path.append(sys.argv[1]); from {module} import main; main()"
    return [sys.executable, *flags, "-c", program, root]


def shimmed(argv: tuple[str, ...]) -> list[str]:
    """The command line that runs ``argv`` so that it dies with this process.

    -I and -S: the shim needs no site-packages, and so costs about 15 ms instead of 60.
    """
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *argv]


def die_with_parent() -> None:
    """Have the kernel end this process when its parent ends, however that happens; only where HAS_PDEATHSIG."""
    # The setting outlives exec. It follows the parent's thread, so children are started from its main thread.
    _prctl(_PR_SET_PDEATHSIG, _SIGKILL)


def adopt_orphans(*, is_on: bool) -> None:
    """Become the parent of descendants whose own parent ends, or be it no more; only where HAS_PDEATHSIG."""
    _prctl(_PR_SET_CHILD_SUBREAPER, int(is_on))


def _prctl(option: int, value: int) -> None:
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def watch(parent_pid: int, command: list[str], *, look_every_s: float = 0.5) -> int:
    """Run the command and kill it once the parent is gone; returns its exit status, 128 + n for signal n."""
    import signal
    import subprocess

    running = subprocess.Popen(command)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda caught, _frame: running.send_signal(caught))
    while True:
        try:
            status = running.wait(timeout=look_every_s)
        except subprocess.TimeoutExpired:
            if os.getppid() != parent_pid:
                running.kill()
            continue
        return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
