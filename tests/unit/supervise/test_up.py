"""`loom up` before anything starts, and `loom stop`; the whole of it is a journey."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from loom_worker.errors import BadSettings, Conflict, LoomError
from loom_worker.settings import from_env
from loom_worker.supervise import home
from loom_worker.supervise.home import State
from loom_worker.supervise.ports import PortTaken
from loom_worker.supervise.stop import stop
from loom_worker.supervise.up import up

HOLDER = """
import os, signal, sys
from pathlib import Path
from loom_worker.supervise import home
directory = Path(sys.argv[1])
if len(sys.argv) > 2: signal.signal(signal.SIGTERM, signal.SIG_IGN)
with home.locked(directory):
    home.write_state(directory, home.State(os.getpid(), "http://127.0.0.1:1", "", "", {}))
    print("held", flush=True)
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
        return up(settings, {**os.environ, **env}, is_port_explicit="LOOM_PORT" in env, say=said.append)
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
    assert holder.wait(timeout=5) == -15
    holder.communicate()


def test_a_stop_where_nothing_runs_touches_nobody(tmp_path: Path) -> None:
    home.prepare(tmp_path)
    home.write_state(tmp_path, State(os.getpid(), "", "", "", {}))
    assert not stop(tmp_path)


def test_a_supervisor_that_does_not_stop_is_named(tmp_path: Path) -> None:
    holder = start_holder(tmp_path, "deaf")
    with pytest.raises(LoomError, match=str(holder.pid)):
        stop(tmp_path, patience_s=0.2)
    holder.kill()
    holder.communicate()
