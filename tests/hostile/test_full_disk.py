"""The disk under `loom up` is full: at its very first start, and while its children are killed."""

import os
import signal
import subprocess
from pathlib import Path

import pytest
import urllib3

from tests.support.disks import filled, small_disk
from tests.support.messages_server import MessagesServer
from tests.support.system import System, leftovers, loom, plain_agent
from tests.support.until import until

pytestmark = [pytest.mark.journey, pytest.mark.heavy, pytest.mark.takes(35)]


def start(home: Path) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": os.environ["PATH"], "LOOM_HOME": str(home)}
    return subprocess.run(loom("up"), env=environ, capture_output=True, text=True, timeout=90, check=False)


@pytest.mark.parametrize("is_made", [False, True])
def test_a_first_start_on_a_full_disk_is_one_clear_line(tmp_path: Path, is_made: bool) -> None:
    with small_disk(tmp_path / "disk", size_bytes=4 << 20) as disk:
        home = disk / "home"
        if is_made:
            home.mkdir()
        with filled(disk):
            done = start(home)
    assert done.returncode == 1
    assert done.stderr == (
        f"loom: LOOM_HOME={home}: its disk is full (No space left on device); make room (`df -h {home}`), or set"
        " LOOM_HOME to a folder on another disk\n"
    )
    assert leftovers(home) == {}


def test_a_first_start_on_a_disk_with_too_little_room_is_one_clear_line(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", size_bytes=1_250_000) as disk:
        done = start(disk / "home")
    assert done.returncode == 1
    assert "disk is full" in done.stderr
    assert [line for line in done.stderr.splitlines() if not line.startswith("loom: ")] == []
    assert leftovers(disk / "home") == {}


def test_loom_up_outlives_a_full_disk_under_its_home_its_logs_and_its_output(tmp_path: Path) -> None:
    agents = plain_agent(tmp_path / "agents")
    with (
        small_disk(tmp_path / "disk", size_bytes=64 << 20) as disk,
        MessagesServer() as server,
        # Its output lies beside the home, and so on the same disk.
        System(disk / "home", ANTHROPIC_BASE_URL=server.url, LOOM_AGENTS_DIR=agents) as system,
    ):
        first = system.ended(system.submit("s", "hello"))
        old = system.children
        supervisor = system.state["pid"]
        with filled(disk):
            for name in ("worker-1", "worker-3", "web", "flower"):
                os.kill(old[name], signal.SIGKILL)
            until(lambda: _answers(system, first["id"]), 30, "the web runs again")
            full = f"{disk / 'home'} has no room"
            assert full in system.get("/readyz").json["detail"]
            assert "loom_disks_full 1.0" in system.get("/metrics").text
            for command in ("status", "doctor"):
                done = system.run(command)
                assert (done.returncode, full in done.stdout) == (1, True), done
            assert _is_alive(supervisor)
            assert system.children == old, "the state file could be written"
        until(lambda: not set(old.items()) <= set(system.children.items()), 20, "the state file is written")
        until(lambda: len(system.children) == len(old), 60, "all run again")
        system.settle()
        assert system.state["pid"] == supervisor
        assert system.ended(system.submit("s", "there is room again"))["status"] == "completed"


def _answers(system: System, turn_id: str) -> bool:
    try:
        return system.get(f"/v1/turns/{turn_id}").status == 200
    except urllib3.exceptions.HTTPError:
        return False


def _is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
