"""The crew and its keeper, with processes that are not Loom's."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.crew import Crew
from tests.support.processes import is_alive
from tests.support.until import until

SLEEPER = (sys.executable, "-c", "import signal; signal.pause()")
PARENT = (
    sys.executable,
    "-c",
    "import signal, subprocess, sys\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'])\n"
    "print(child.pid, flush=True)\n"
    "signal.pause()",
)

pytestmark = pytest.mark.integration


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Crew]:
    crew = Crew(tmp_path, {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(__file__).parents[3])})
    crew.open(loads_loom=False)
    yield crew
    crew.close()


def test_what_is_killed_runs_again_until_it_is_forgotten(crew: Crew) -> None:
    crew.start("one", SLEEPER, is_loom=False)
    killed = crew.signal("one", signal.SIGKILL)
    until(lambda: crew.pid("one") not in (0, killed), 10, "it runs again")
    assert [(ended.name, ended.pid, ended.status) for ended in crew.ended] == [("one", killed, -9)]
    assert crew.finish(("one",), 10) == ()
    assert crew.names == ()


def test_what_a_dead_process_had_started_dies_too(crew: Crew, tmp_path: Path) -> None:
    crew.start("one", PARENT, is_loom=False)
    log = tmp_path / "one.log"
    child = int(until(lambda: log.read_text().split() if log.exists() else [], 10, "its child runs")[0])
    crew.signal("one", signal.SIGKILL)
    until(lambda: not is_alive(child), 10, "the child is dead")


def test_a_process_that_ignores_sigterm_is_named_and_killed(crew: Crew, tmp_path: Path) -> None:
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True)\nwhile 1: signal.pause()"
    crew.start("deaf", (sys.executable, "-c", deaf), is_loom=False)
    until(lambda: (tmp_path / "deaf.log").exists() and (tmp_path / "deaf.log").read_text(), 10, "it is deaf")
    pid = crew.pid("deaf")
    assert crew.finish(("deaf",), 0.2) == ("deaf",)
    until(lambda: not is_alive(pid), 10, "it is dead")


def test_nothing_outlives_the_keeper(tmp_path: Path, crew: Crew) -> None:
    crew.start("one", SLEEPER, is_loom=False)
    pid = crew.pid("one")
    crew.close()
    until(lambda: not is_alive(pid), 10, "it is dead")
