"""`loom up` before anything starts, and `loom stop`; the whole of it is a journey."""

import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from subprocess import DEVNULL, PIPE

import pytest

from loom_worker.core.errors import BadSettings, Conflict, LoomError
from loom_worker.core.settings import from_env
from loom_worker.supervisor import home
from loom_worker.supervisor.home import State, stop
from loom_worker.supervisor.launcher import Launcher
from loom_worker.supervisor.ports import PortTaken
from loom_worker.supervisor.specs import loom_command
from loom_worker.supervisor.up import up
from tests.support.processes import is_alive, killed_at_the_end, looping
from tests.support.until import until

HOLDER = """
import os, signal, sys
from pathlib import Path
from loom_worker.supervisor import home
directory = Path(sys.argv[1])
if len(sys.argv) > 2: signal.signal(signal.SIGTERM, signal.SIG_IGN)
with home.locked(directory):
    home.write_state(directory, home.State(os.getpid(), "http://127.0.0.1:1", "", "", {}))
    print("held", flush=True)
    signal.pause()
"""


STARTING = """
import os, sys, signal
from pathlib import Path
from loom_worker.supervisor import home
with home.locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
    home.write_state(Path(sys.argv[1]), home.State(os.getpid(), "", "", "", {}))
    signal.pause()
"""


def start_holder(directory: Path, *arguments: str) -> subprocess.Popen[str]:
    home.prepare(directory)
    command = [sys.executable, "-c", HOLDER, str(directory), *arguments]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    return holder


def run(directory: Path, said: list[str], **env: str) -> int:
    settings = from_env({"LOOM_HOME": str(directory), **env})
    old = os.umask(0o022)
    try:
        is_port_explicit = "LOOM_PORT" in env
        return up(
            settings,
            {**os.environ, **env},
            is_port_explicit=is_port_explicit,
            say=said.append,
            launcher=Launcher(),
        )
    finally:
        os.umask(old)


def test_a_taken_port_that_was_asked_for_starts_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        with pytest.raises(PortTaken, match=port):
            run(tmp_path, said, LOOM_PORT=port)
    assert said == []
    assert home.read_state(tmp_path) is None
    assert not home.is_held(tmp_path)


def test_a_taken_port_that_was_asked_for_flower_starts_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = int(server.getsockname()[1])
        way_out = f"^port {port} is taken on 127.0.0.1; choose another with LOOM_FLOWER_PORT={port + 1}$"
        with pytest.raises(PortTaken, match=way_out):
            run(tmp_path, [], LOOM_FLOWER_PORT=str(port))
    assert not home.is_held(tmp_path)


def test_an_address_that_flower_cannot_listen_on_is_named_as_its_own(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match=r"^LOOM_FLOWER_ADDRESS='192\.0\.2\.1'"):
        run(tmp_path, [], LOOM_FLOWER_ADDRESS="192.0.2.1")


def test_a_host_that_nobody_can_listen_on_starts_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    with pytest.raises(BadSettings, match=r"^LOOM_HOST='192\.0\.2\.1'"):
        run(tmp_path, said, LOOM_HOST="192.0.2.1")
    assert said == []
    assert not home.is_held(tmp_path)


def test_a_home_that_is_in_use_starts_nothing(tmp_path: Path) -> None:
    holder = start_holder(tmp_path)
    with pytest.raises(Conflict, match=rf"pid {holder.pid}, http://127\.0\.0\.1:1"):
        run(tmp_path, [])
    holder.kill()
    holder.communicate()


def test_a_database_that_is_not_looms_is_left_alone_and_named(tmp_path: Path) -> None:
    (tmp_path / "loom.db").write_bytes(b"these are not the rows you look for" * 100)
    with pytest.raises(BadSettings, match=r"^LOOM_DATABASE_URL: .*loom\.db"):
        run(tmp_path, [])
    assert home.read_state(tmp_path) is None


def test_a_stop_ends_the_supervisor_and_waits_for_it(tmp_path: Path) -> None:
    holder = start_holder(tmp_path)
    assert stop(tmp_path)
    assert not home.is_held(tmp_path)
    assert holder.wait(timeout=60) == -15
    holder.communicate()


def test_a_stop_where_nothing_runs_touches_nobody(tmp_path: Path) -> None:
    home.prepare(tmp_path)
    home.write_state(tmp_path, State(os.getpid(), "", "", "", {}))
    assert not stop(tmp_path)


def test_a_stop_ends_a_supervisor_that_only_just_starts_and_nobody_who_has_an_old_ones_pid(tmp_path: Path) -> None:
    home.prepare(tmp_path)
    command = [sys.executable, "-c", STARTING, str(tmp_path)]
    with subprocess.Popen(looping(), stdout=DEVNULL) as bystander, killed_at_the_end(bystander.pid):
        home.write_state(tmp_path, State(bystander.pid, "", "", "", {}))
        starting = subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True)
        with ThreadPoolExecutor(1) as thread, killed_at_the_end(starting.pid):
            assert starting.stdout is not None
            assert starting.stdin is not None
            assert starting.stdout.readline() == "held\n"
            stopping = thread.submit(stop, tmp_path)
            wait([stopping], timeout=0.3)
            is_waiting = not stopping.done()
            starting.stdin.write("now\n")
            starting.stdin.flush()
            assert stopping.result(timeout=60)
            assert is_waiting
            assert starting.wait(timeout=60) == -15
        starting.communicate()
        assert is_alive(bystander.pid)


def test_what_starts_can_be_seen_and_stopped_before_its_data_are_made(tmp_path: Path) -> None:
    home.prepare(tmp_path)
    # Nobody writes to it, so that preparing waits.
    os.mkfifo(tmp_path / "loom.db")
    command = [*loom_command(), "up"]
    starting = subprocess.Popen(command, env={**os.environ, "LOOM_HOME": str(tmp_path)}, stdout=DEVNULL)
    with killed_at_the_end(starting.pid):
        state = until(lambda: home.running(tmp_path), 20, "it says that it runs")
        assert state is not None
        assert (state.pid, state.children) == (starting.pid, {})
        assert stop(tmp_path)
        assert starting.wait(timeout=60) == -15
    assert not home.is_held(tmp_path)


def test_a_supervisor_that_does_not_stop_is_named(tmp_path: Path) -> None:
    holder = start_holder(tmp_path, "deaf")
    with pytest.raises(LoomError, match=str(holder.pid)):
        stop(tmp_path, patience_s=0.2)
    holder.kill()
    holder.communicate()
