"""Two `loom up` race for one home, and `loom up` with its whole tree is killed while turns run."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.hanging import Hanging
from tests.support.messages_server import MessagesServer
from tests.support.system import System, kill, leftovers, loom, plain_agent
from tests.support.until import until
from tests.support.webhook_receiver import unused_port

pytestmark = pytest.mark.journey


def test_of_two_that_start_at_once_on_one_home_exactly_one_runs_and_the_other_says_so(tmp_path: Path) -> None:
    home = tmp_path / "home"
    environ = {"PATH": os.environ["PATH"], "LOOM_HOME": str(home), "LOOM_PROVIDER": "scripted"}
    racers = [
        subprocess.Popen(
            loom("up", "--port", str(unused_port())), env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        for _ in range(2)
    ]
    try:
        until(lambda: any(racer.poll() is not None for racer in racers), 60, "one of them ends")
        [lost] = [racer for racer in racers if racer.poll() is not None]
        [winner] = [racer for racer in racers if racer is not lost]
        _, complaint = lost.communicate()
        assert lost.returncode == 1
        assert complaint.startswith(f"loom: Loom already runs on {home}".encode())
        assert complaint.count(b"\n") == 1
        until(lambda: (home / "up.json").exists(), 60, "the other one runs")
        winner.terminate()
        assert winner.wait(timeout=60) == 0
        winner.communicate()
        assert leftovers(home) == {}
    finally:
        for pid in leftovers(home):
            kill(pid)


def test_a_tree_that_is_killed_leaves_nothing_and_its_turns_finish_after_the_next_start(tmp_path: Path) -> None:
    script = Hanging()
    agents = plain_agent(tmp_path / "agents")
    with (
        MessagesServer(script=script) as server,
        System(tmp_path / "home", ANTHROPIC_BASE_URL=server.url, LOOM_AGENTS_DIR=agents) as system,
    ):
        running = system.submit("waits", "Wait.")
        until(lambda: system.holder(running), 20, "the turn runs")
        accepted = [running, *(system.submit(session, "hello") for session in ("waits", "a", "b"))]
        for pid in leftovers(system.home):  # the supervisor and all below it, in whatever order
            kill(pid)
        system.kill_supervisor()
        until(lambda: leftovers(system.home) == {}, 20, "nothing is left")
        script.release.set()
        system.start()
        assert [system.ended(turn)["status"] for turn in accepted] == ["completed"] * len(accepted)
        assert [message["role"] for message in system.messages("waits")] == ["user", "assistant"] * 2
