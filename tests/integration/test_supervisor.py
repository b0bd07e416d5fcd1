"""The supervisor with real processes: what dies is restarted, and nothing outlives it."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from loom_worker.supervisor.decide import Spec
from loom_worker.supervisor.run import how
from tests.support.processes import failing, is_alive, looping
from tests.support.until import until

pytestmark = pytest.mark.takes(15)

SAYS_PID = "import os; print(os.getpid(), flush=True)"
TELLS_ITS_END = """
import os, time
def end(*_): open('ends', 'a').write(NAME + chr(10)); os._exit(0)
signal.signal(signal.SIGTERM, end)
"""
DEAF = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"


class Room:
    """A folder in which a supervisor runs, and what it and its children said."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.supervisor: subprocess.Popen[bytes] | None = None

    def run(self, *specs: Spec) -> subprocess.Popen[bytes]:
        table = self.folder / "specs.json"
        table.write_text(json.dumps([asdict(s) for s in specs], default=sorted))
        command = [sys.executable, "-m", "tests.support.supervising", str(table)]
        with (self.folder / "said").open("wb") as said:
            self.supervisor = subprocess.Popen(
                [*command, str(self.folder)], cwd=self.folder, stdout=said, stderr=said, env={**os.environ, **PATHS}
            )
        return self.supervisor

    def said(self) -> str:
        return (self.folder / "said").read_text()

    def log(self, name: str) -> str:
        file = self.folder / f"{name}.log"
        return file.read_text() if file.exists() else ""

    def pids(self, name: str) -> list[int]:
        return [int(number) for number in re.findall(r"^(\d+)$", self.log(name), re.MULTILINE)]

    def started(self, name: str, times: int = 1) -> int:
        def last() -> int:
            return self.pids(name)[-1] if self.log(name).count("up\n") >= times else 0

        return until(last, 10, f"{name} starts {times} times; {self.said()}")

    def heartbeats(self, *pids: int) -> None:
        """From now on the heartbeats of these beat, and no other's."""
        fresh = self.folder / "heartbeats.new"
        fresh.write_text(" ".join(map(str, pids)))
        fresh.replace(self.folder / "heartbeats")

    def end(self) -> None:
        if self.supervisor is not None:
            self.supervisor.kill()
            self.supervisor.wait()


PATHS = {"PYTHONPATH": str(Path(__file__).parents[3])}


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    room = Room(tmp_path)
    yield room
    room.end()


def child(name: str, setup: str = "", *, stage: int = 1, grace_s: float = 10.0) -> Spec:
    return Spec(name, looping(f"NAME = {name!r}\n{SAYS_PID}\n{setup}"), stop_stage=stage, grace_s=grace_s)


def test_what_is_killed_runs_again_and_the_reason_is_told(room: Room) -> None:
    room.run(child("web"), child("beat"))
    first, beat = room.started("web"), room.started("beat")
    os.kill(first, signal.SIGKILL)
    second = room.started("web", times=2)
    assert second != first
    assert is_alive(beat)
    assert "web ended (SIGKILL); restarting in 0.2 s" in room.said()


def test_a_supervisor_that_is_killed_takes_every_child_with_it(room: Room) -> None:
    supervisor = room.run(child("web"), child("worker", DEAF))
    children = [room.started("web"), room.started("worker")]
    supervisor.send_signal(signal.SIGKILL)
    supervisor.wait()
    until(lambda: not any(map(is_alive, children)), 5, "the children end")


@pytest.mark.heavy
def test_a_web_that_never_comes_up_stops_everything_and_shows_the_end_of_its_log(room: Room) -> None:
    supervisor = room.run(child("beat"), Spec("web", failing(3), is_indispensable=True))
    beat = room.started("beat")
    assert supervisor.wait(timeout=60) == 1
    assert not is_alive(beat)
    said = room.said()
    assert said.count("web ended (exit code 3); ") == 5
    assert "web ended 5 times and never served" in said
    assert re.search(r"about to fail\n--- \S+Z web ended \(exit code 3\)\n*$", said)


@pytest.mark.heavy
def test_a_worker_that_does_not_stay_up_is_told_loudly_once_and_ends_nobody(room: Room) -> None:
    supervisor = room.run(child("web"), Spec("worker", failing(3)))
    web = room.started("web")
    until(lambda: room.said().count("worker ended (exit code 3)") >= 6, 40, "the worker has died six times")
    assert supervisor.poll() is None
    assert is_alive(web)
    assert room.pids("web") == [web]
    assert room.said().count("worker DOES NOT STAY UP") == 1
    assert "about to fail" in room.said()


@pytest.mark.heavy
def test_a_child_that_cannot_be_started_is_tried_again_and_ends_nobody(room: Room) -> None:
    supervisor = room.run(child("web"), Spec("worker", ("a" * 300_000,)))  # longer than the kernel takes
    web = room.started("web")
    until(lambda: room.said().count("worker cannot be started (Argument list too long)") >= 3, 20, "it is tried again")
    assert supervisor.poll() is None
    assert is_alive(web)


@pytest.mark.heavy
def test_a_child_whose_log_cannot_be_written_runs_without_one(room: Room) -> None:
    (room.folder / "web.log").symlink_to(room.folder / "nowhere" / "web.log")
    room.run(child("web"), child("beat"))
    room.started("beat")
    until(lambda: "web.log cannot be written; the output of web is lost" in room.said(), 10, "it is told")
    assert "web ended" not in room.said()


@pytest.mark.heavy
def test_the_traceback_of_a_crash_is_still_there_after_four_more_starts_and_deaths(room: Room) -> None:
    once = "import pathlib; it = pathlib.Path('crashed')\nif not it.exists(): it.touch(); raise OSError('that night')"
    for start in range(1, 6):
        supervisor = room.run(child("worker", once))
        os.kill(room.started("worker", times=2 * start - 1), signal.SIGKILL)
        room.started("worker", times=2 * start)
        supervisor.terminate()
        assert supervisor.wait(timeout=60) == 0
    story = re.findall(r"Traceback|OSError: that night|worker (?:starts|ended \(.+\))", room.log("worker"))
    assert story[:4] == ["worker starts", "Traceback", "OSError: that night", "worker ended (exit code 1)"]
    assert story[4:] == ["worker starts", "worker ended (SIGKILL)", "worker starts", "worker ended (SIGTERM)"] * 5


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_stop_goes_stage_by_stage_and_leaves_nothing_running(room: Room, number: signal.Signals) -> None:
    names = {"valkey": 3, "web": 0, "beat": 2, "worker": 1}
    supervisor = room.run(*(child(name, TELLS_ITS_END, stage=stage) for name, stage in names.items()))
    children = [room.started(name) for name in names]
    supervisor.send_signal(number)
    assert supervisor.wait(timeout=60) == 0
    assert (room.folder / "ends").read_text().split() == ["web", "worker", "beat", "valkey"]
    assert not any(map(is_alive, children))
    assert "nothing is left running" in room.said()


@pytest.mark.heavy
def test_a_child_deaf_to_sigterm_is_killed_after_its_grace(room: Room) -> None:
    supervisor = room.run(child("worker", DEAF, grace_s=0.2))
    worker = room.started("worker")
    supervisor.terminate()
    assert supervisor.wait(timeout=60) == 0
    assert not is_alive(worker)


@pytest.mark.heavy
def test_a_second_interrupt_does_not_wait_for_any_grace(room: Room) -> None:
    supervisor = room.run(child("web", DEAF, stage=0, grace_s=600), child("valkey", DEAF, stage=3, grace_s=600))
    children = [room.started("web"), room.started("valkey")]
    supervisor.send_signal(signal.SIGINT)
    until(lambda: "stopping" in room.said(), 5, "the stop begins")
    supervisor.send_signal(signal.SIGINT)
    assert supervisor.wait(timeout=60) == 0
    assert not any(map(is_alive, children))


@pytest.mark.heavy
def test_a_child_that_ends_during_the_stop_is_not_restarted(room: Room) -> None:
    supervisor = room.run(child("web", DEAF, stage=0, grace_s=600), child("worker", stage=1))
    web, worker = room.started("web"), room.started("worker")
    supervisor.terminate()
    until(lambda: "stopping" in room.said(), 5, "the stop begins")
    os.kill(worker, signal.SIGKILL)
    os.kill(web, signal.SIGKILL)
    assert supervisor.wait(timeout=60) == 0
    assert len(room.pids("worker")) == 1


@pytest.mark.heavy
def test_nothing_starts_before_the_foundation_is_open(room: Room) -> None:
    foundation = Spec("valkey", child("valkey").argv, is_foundation=True)
    room.run(foundation, child("web"))
    room.started("valkey")
    assert room.log("web") == ""
    (room.folder / "open").touch()
    room.started("web")


def test_what_a_child_had_started_ends_with_it(room: Room) -> None:
    forks = "child = os.fork()\nif child == 0: signal.pause()\nprint(f'forked={child}', flush=True)"
    room.run(child("valkey", forks))
    first = room.started("valkey")
    grandchild = int(re.findall(r"forked=(\d+)", room.log("valkey"))[0])
    os.kill(first, signal.SIGKILL)
    until(lambda: not is_alive(grandchild), 5, "the grandchild ends")


@pytest.mark.heavy
def test_a_worker_that_takes_no_turns_is_told_to_end_and_runs_again(room: Room) -> None:
    room.run(child("worker", TELLS_ITS_END), child("tools"))
    worker, tools = room.started("worker"), room.started("tools")
    room.heartbeats(worker)
    (room.folder / "unanswered").touch()
    assert room.started("worker", times=2) != worker
    assert (room.folder / "ends").read_text() == "worker\n"
    assert is_alive(tools)
    told = (
        "worker is alive but takes no turns (wake-ups unanswered for 60 s); restarting it\nworker ended (exit code 0)"
    )
    assert room.said().count(told) == room.said().count("restarting it") == 1


@pytest.mark.heavy
def test_one_that_takes_no_turns_and_does_not_hear_either_is_killed_after_its_grace(room: Room) -> None:
    room.run(child("worker", DEAF, grace_s=0.2))
    worker = room.started("worker")
    room.heartbeats(worker)
    (room.folder / "unanswered").touch()
    assert room.started("worker", times=2) != worker
    assert "worker ended (SIGKILL); restarting in 0.2 s" in room.said()


@pytest.mark.heavy
def test_a_child_that_is_stopped_and_whose_heart_stands_still_is_killed_and_runs_again(room: Room) -> None:
    room.run(child("worker", grace_s=600), child("tools"))
    worker, tools = room.started("worker"), room.started("tools")
    room.heartbeats(worker, tools)
    until(lambda: (room.folder / "seen").read_text() == f"{worker} {tools}", 5, "both heartbeats are seen")
    os.kill(worker, signal.SIGSTOP)
    room.heartbeats(tools)
    assert room.started("worker", times=2) != worker
    assert "worker is hung" in room.said()
    assert room.pids("tools") == [tools]


@pytest.mark.parametrize(
    ("status", "words"), [(0, "exit code 0"), (3, "exit code 3"), (-9, "SIGKILL"), (-63, "signal 63")]
)
def test_an_exit_status_is_told_in_words(status: int, words: str) -> None:
    assert how(status) == words
