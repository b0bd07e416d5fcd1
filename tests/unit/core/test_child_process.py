"""The shim: a command that cannot outlive its parent, with the kernel's help or without."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from loom_worker.core import child_process
from tests.support.processes import failing, is_alive, killed_at_the_end, looping
from tests.support.until import until

SHIM = [sys.executable, "-I", "-S", child_process.__file__]
SAYS_PID = "import os; print(os.getpid(), flush=True)"
# A parent that starts the shim in one of the two ways and then waits to be killed.
PARENT = """
import os, signal, subprocess, sys
from loom_worker.core import child_process
way, *command = sys.argv[1:]
if way == "kernel":
    subprocess.Popen([sys.executable, "-I", "-S", child_process.__file__, str(os.getpid()), *command])
else:
    parent = os.getpid()
    if os.fork() == 0:
        os._exit(child_process.watch(parent, command, look_every_s=0.05))
signal.pause()
"""


def test_the_shim_becomes_the_command_itself() -> None:
    running = subprocess.Popen([*SHIM, str(os.getpid()), *looping(SAYS_PID)], stdout=subprocess.PIPE, text=True)
    with killed_at_the_end(running.pid):
        assert running.stdout is not None
        assert int(running.stdout.readline()) == running.pid
        assert Path(f"/proc/{running.pid}/cmdline").read_text().startswith(f"{sys.executable}\0-c\0")
    running.communicate()


def test_a_command_whose_parent_is_gone_already_is_not_started() -> None:
    done = subprocess.run([*SHIM, "999999999", *failing(3)], capture_output=True, check=False)
    assert done.returncode == child_process.ORPHANED
    assert done.stdout == b""


@pytest.mark.parametrize("way", ["kernel", "watch"])
def test_a_command_ends_when_its_parent_is_killed(way: str) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, way, *looping(SAYS_PID)], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    with killed_at_the_end(pid):
        assert is_alive(pid)
        parent.kill()
        parent.wait()
        until(lambda: not is_alive(pid), 5, "the command ends with its parent")
    parent.stdout.close()


@pytest.mark.parametrize(("command", "status"), [(failing(3), 3), (looping("signal.raise_signal(9)"), 137)])
def test_a_watched_command_passes_its_end_on(command: tuple[str, ...], status: int) -> None:
    code = "import os, sys; from loom_worker.core import child_process\n"
    code += "sys.exit(child_process.watch(os.getppid(), sys.argv[1:]))"
    done = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, check=False)
    assert done.returncode == status


def test_a_watched_command_hears_sigterm() -> None:
    code = "import os, sys; from loom_worker.core import child_process\n"
    code += "sys.exit(child_process.watch(os.getppid(), sys.argv[1:]))"
    leaves = "import sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))"
    watching = subprocess.Popen([sys.executable, "-c", code, *looping(leaves)], stdout=subprocess.PIPE, text=True)
    assert watching.stdout is not None
    assert watching.stdout.readline() == "up\n"
    watching.send_signal(signal.SIGTERM)
    assert watching.wait(timeout=60) == 7
    watching.stdout.close()
