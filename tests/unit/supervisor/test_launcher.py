"""What is forked is a process like one that was started: alone, and its parent's."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from loom_worker.supervisor.launcher import IS_SUPPORTED, Forked, ForkFailed, ForkServer, Launcher, StartedProcess
from loom_worker.supervisor.specs import loom_command
from tests.support.processes import is_alive, killed_at_the_end
from tests.support.until import until

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(not IS_SUPPORTED, reason="only Linux gives a fork a new parent"),
]
SECRETS = {"ANTHROPIC_API_KEY": "s3cret-1", "LOOM_API_KEYS": "w=s3cret-2", "LOOM_SECRET_X": "s3cret-3"}
ENVIRON = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
DOCTOR = ("doctor", "--problems", "--json")
SUPERVISOR = f"""
import os, time
from loom_worker.supervisor.launcher import ForkServer
nowhere = os.open(os.devnull, os.O_WRONLY)
ForkServer(os.environ).fork(("loom",), {DOCTOR!r}, os.environ, outputs=(nowhere, nowhere))
time.sleep(600)
"""

STRAY = """
import os, signal, sys, time
from loom_worker.supervisor.launcher import ForkServer
from loom_worker.supervisor.launcher import Launcher
from loom_worker.supervisor.specs import loom_command
nowhere = os.open(os.devnull, os.O_WRONLY)
launcher = Launcher(ForkServer(os.environ))
child = launcher.start((*loom_command(), "doctor", "--problems"), os.environ, outputs=(nowhere, nowhere))
stray = int(sys.stdin.readline())
os.kill(stray, signal.SIGKILL)
until_s = time.monotonic() + 20
while os.path.exists(f"/proc/{stray}") and time.monotonic() < until_s:
    child.poll()
    launcher.reap_strays()
    time.sleep(0.01)
print(os.path.exists(f"/proc/{stray}"), child.wait())
"""


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    made = ForkServer({**ENVIRON, **SECRETS, "SHELL_SECRET": "s3cret-4"})
    yield made
    made.end()


def waiting_tool(folder: Path) -> Path:
    """Make an agent whose file of tools waits for ever, and tells its process and its environment in this file."""
    new, told = folder / "new", folder / "told"
    text = "import json, os, threading\nfrom pathlib import Path\n"
    text += f"Path({str(new)!r}).write_text(json.dumps([os.getpid(), dict(os.environ)]))\n"
    text += f"Path({str(new)!r}).rename({str(told)!r})\nthreading.Event().wait()\n"
    (folder / "mine.py").write_text(text, encoding="utf-8")
    (folder / "a.yaml").write_text("agent: {name: a, tools: [mine.py]}\n", encoding="utf-8")
    return told


@contextmanager
def waiting(server: ForkServer, folder: Path, **environ: str) -> Iterator[Forked]:
    """A doctor that imports a user's file, and waits in it."""
    told = waiting_tool(folder)
    environ |= {"LOOM_HOME": str(folder / "home"), "LOOM_AGENTS_DIR": str(folder)}
    child, _ = forked(server, *DOCTOR, **environ)
    with killed_at_the_end(child.pid):
        until(told.exists, 30, "the user's file is imported")
        yield child


def forked(server: ForkServer, *arguments: str, **environ: str) -> tuple[Forked, Path]:
    """What was forked, and the file with what it says."""
    with tempfile.NamedTemporaryFile(delete=False) as said:
        outputs = (said.fileno(), said.fileno())
        child = server.fork((*loom_command(), *arguments), arguments, {**ENVIRON, **environ}, outputs=outputs)
        return child, Path(said.name)


def fields(pid: int) -> Sequence[str]:
    """Of /proc/<pid>/stat, from its state on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def test_a_fork_runs_the_command_and_its_status_and_output_are_known(server: ForkServer) -> None:
    version, said = forked(server, "--version")
    assert version.wait() == 0
    assert said.read_text().startswith("loom, version ")
    assert version.poll() == 0
    wrong, said = forked(server, "worker", "--queues", "none")
    assert wrong.wait() == 2
    assert "expected some of turn, tool" in said.read_text()


def test_a_fork_stands_alone_below_its_supervisor(server: ForkServer, tmp_path: Path) -> None:
    with waiting(server, tmp_path) as child:
        line = Path(f"/proc/{child.pid}/cmdline").read_bytes().rstrip(b"\0")
        assert line.decode().split("\0") == [*loom_command(), *DOCTOR]
        _, parent, group, session = fields(child.pid)[:4]
        assert (int(parent), int(group), int(session)) == (os.getpid(), child.pid, child.pid)
        child.terminate()
        assert child.wait() == -signal.SIGTERM
    assert forked(server, "--version")[0].wait() == 0


def test_a_fork_has_the_variables_that_it_is_sent_and_shows_no_secret(server: ForkServer, tmp_path: Path) -> None:
    sent = {"LOOM_SECRET_Y": "s3cret-5", "OF_A_TOOL": "plain"}
    with waiting(server, tmp_path, **sent) as child:
        assert b"s3cret" not in Path(f"/proc/{child.pid}/environ").read_bytes()
        _, had = json.loads((tmp_path / "told").read_text())
        assert had["OF_A_TOOL"] == "plain"
        assert [name for name, value in had.items() if "s3cret" in value] == []


def test_what_one_fork_is_sent_no_other_one_knows(tmp_path: Path) -> None:
    server = ForkServer({**ENVIRON, **SECRETS}, is_debuggable=True)
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    with (
        waiting(server, first, LOOM_DEBUGGABLE="1", OF_A_TOOL="s3cret-6") as knowing,
        waiting(server, second, LOOM_DEBUGGABLE="1") as other,
    ):
        assert b"s3cret-6" in memory_of(knowing.pid)
        assert b"s3cret-" not in memory_of(other.pid)
    server.end()


def memory_of(pid: int) -> bytes:
    """All that a process has written to or can write to, one part after the other."""
    ranges = [line.split() for line in Path(f"/proc/{pid}/maps").read_text().splitlines()]
    with Path(f"/proc/{pid}/mem").open("rb") as memory:
        parts = []
        for begin, end in (each[0].split("-") for each in ranges if each[1].startswith("rw")):
            memory.seek(int(begin, 16))
            parts.append(memory.read(int(end, 16) - int(begin, 16)))
    return b"\0".join(parts)


def test_what_was_forked_outlives_the_server_and_the_next_is_a_new_program(tmp_path: Path) -> None:
    server = ForkServer(ENVIRON)
    with waiting(server, tmp_path) as child:
        launcher = Launcher(server)
        launcher.settle()
        assert child.poll() is None
        assert fields(child.pid)[1] == str(os.getpid())
        assert isinstance(version_of(launcher), subprocess.Popen)
    assert child.wait() == -signal.SIGKILL


def test_a_server_that_is_gone_forks_nothing_and_the_launcher_starts_a_program() -> None:
    server = ForkServer(ENVIRON)
    os.killpg(server.pid, signal.SIGKILL)
    with pytest.raises(ForkFailed):
        forked(server, "--version")
    assert isinstance(version_of(Launcher(server)), subprocess.Popen)


def version_of(launcher: Launcher) -> StartedProcess:
    """A child that has said its version."""
    with tempfile.TemporaryFile() as said:
        child = launcher.start((*loom_command(), "--version"), ENVIRON, outputs=(said.fileno(), said.fileno()))
        assert child.wait() == 0
        said.seek(0)
        assert said.read().startswith(b"loom, version ")
        return child


def test_a_fork_ends_with_its_supervisor_however_that_ends(tmp_path: Path) -> None:
    told = waiting_tool(tmp_path)
    environ = {**os.environ, "LOOM_HOME": str(tmp_path / "home"), "LOOM_AGENTS_DIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", SUPERVISOR], env=environ) as supervisor:
        until(told.exists, 60, "the user's file is imported")
        number, _ = json.loads(told.read_text())
        supervisor.kill()
    until(lambda: not is_alive(number), 10, "the fork ends")


def test_an_orphan_that_comes_to_the_supervisor_is_reaped_and_no_child_of_its_own(
    tmp_path: Path,
) -> None:
    stray = tmp_path / "stray"
    text = "import os, pathlib, subprocess\n"
    text += "child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
    text += f"pathlib.Path({str(stray)!r}).write_text(str(child.pid))\nos._exit(7)\n"
    (tmp_path / "mine.py").write_text(text, encoding="utf-8")
    (tmp_path / "a.yaml").write_text("agent: {name: a, tools: [mine.py]}\n", encoding="utf-8")
    environ = {**os.environ, "LOOM_HOME": str(tmp_path / "home"), "LOOM_AGENTS_DIR": str(tmp_path)}
    command = [sys.executable, "-c", STRAY]
    with subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as supervisor:
        pid = until(lambda: stray.exists() and stray.read_text(), 60, "the user's file has started a process")
        said, _ = supervisor.communicate(f"{pid}\n", timeout=60)
    assert said == "False 7\n"
