"""Several `loom up` on one home: one runs, the others say so in a line and disturb nothing."""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from loom_worker.core.settings import embedded_socket
from loom_worker.supervisor.home import read_state
from tests.support.messages_server import MessagesServer
from tests.support.processes import killed_at_the_end
from tests.support.system import START_S, STOP_S, System, leftovers, loom, plain_agent
from tests.support.until import until
from tests.support.webhook_receiver import unused_port

pytestmark = [pytest.mark.journey, pytest.mark.heavy, pytest.mark.takes(60)]

STARTS = 3
"""At the same time."""
ROUNDS = 3
"""The first on a fresh home, each other one on what the killed winner of the round before left."""


@dataclass(frozen=True)
class Start:
    """A `loom up` that takes part in a race."""

    process: subprocess.Popen[bytes]
    port: int
    output: Path

    @property
    def said(self) -> str:
        return self.output.read_text()

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None


@contextmanager
def start(system: System, name: str) -> Iterator[Start]:
    """`loom up` on the system's home, with a port of its own."""
    port, output = unused_port(), system.home.with_name(f"{name}.out")
    with output.open("wb") as said:
        process = subprocess.Popen(
            loom("up", "--port", str(port)), env=system.environ, stdin=subprocess.DEVNULL, stdout=said, stderr=said
        )
    with killed_at_the_end(process.pid):
        yield Start(process, port, output)
    process.wait()


def system_on(folder: Path, server: MessagesServer) -> System:
    agents = plain_agent(folder / "agents")
    return System(folder / "home", ANTHROPIC_BASE_URL=server.url, LOOM_AGENTS_DIR=agents)


def race(system: System, starts: list[Start]) -> Start:
    """Wait until one is left, and look at what the others did; returns the winner."""
    until(lambda: sum(it.has_ended for it in starts) >= len(starts) - 1, START_S, "all but one have ended")
    [winner] = [it for it in starts if not it.has_ended]
    until(lambda: stated(system.home) == winner.process.pid, START_S, f"it says that it runs: {winner.said}")
    # What was killed with the winner of the round before may take a moment to die.
    until(lambda: all(descends(pid, winner.process.pid) for pid in leftovers(system.home)), 10, "all else has ended")
    for loser in set(starts) - {winner}:
        assert_refused(loser, system.home, winner.process.pid)
    return winner


def assert_refused(loser: Start, home: Path, holder: int) -> None:
    """It ended with one line, which names nobody but the holder: none whose state file was merely found."""
    assert loser.process.returncode == 1, loser.said
    [line] = loser.said.splitlines()
    assert line.startswith(f"loom: Loom already runs on {home}")
    assert "(pid" not in line or f"(pid {holder}, http://" in line


def descends(pid: int, ancestor: int) -> bool:
    """True for the process itself, for those below it, and for one that is gone."""
    while pid not in (ancestor, 0, 1):
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return True
    return pid == ancestor


def stated(home: Path) -> int | None:
    """The pid in the state file."""
    state = read_state(home)
    return state.pid if state else None


def kept(home: Path) -> dict[str, tuple[int, ...]]:
    """What shows whether a file was replaced or written, of those that a running Loom does not write all the time."""
    names = ("up.json", "loom.lock", "webhook.secret", "flower.password", "shop.db")
    files = {name: (home / name).stat() for name in names}
    lasting = {"socket": embedded_socket(home).stat().st_ino, "database": (home / "loom.db").stat().st_ino}
    return {
        **{name: (file.st_ino, file.st_mtime_ns, file.st_size) for name, file in files.items()},
        **{name: (inode,) for name, inode in lasting.items()},
    }


def test_of_loom_ups_that_race_for_a_home_one_runs_and_the_others_leave_no_trace(tmp_path: Path) -> None:
    with MessagesServer() as server:
        system = system_on(tmp_path, server)
        for _ in range(ROUNDS - 1):
            with ExitStack() as racing:
                race(system, [racing.enter_context(start(system, f"start-{n}")) for n in range(STARTS)])
        with ExitStack() as racing:
            winner = race(system, [racing.enter_context(start(system, f"last-{n}")) for n in range(STARTS)])
            system.url = f"http://127.0.0.1:{winner.port}"
            until(system.is_ready, START_S, f"the winner serves: {winner.said}")
            assert system.ended(system.submit("s", "hello"))["status"] == "completed"
            assert system.run("stop").stdout == "stopped; nothing is left running\n"
            assert winner.process.wait(timeout=STOP_S) == 0
        assert leftovers(system.home) == {}


def test_a_loom_up_beside_a_running_one_changes_no_file_and_ends_no_process(tmp_path: Path) -> None:
    with MessagesServer() as server, system_on(tmp_path, server) as system:
        before, children = kept(system.home), system.children
        with start(system, "one") as one, start(system, "other") as other:
            for it in (one, other):
                it.process.wait(timeout=START_S)
                assert_refused(it, system.home, system.state["pid"])
        assert (kept(system.home), system.children) == (before, children)
        assert system.ended(system.submit("s", "still there?"))["status"] == "completed"
        assert set(children.values()) <= set(leftovers(system.home))
