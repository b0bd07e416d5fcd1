"""Backups taken while workers, and the backup itself, are killed; and a Loom that goes on from the last one."""

import shutil
import signal
import subprocess
from itertools import cycle
from pathlib import Path

import pytest

from loom_worker.store.file import flaws
from tests.support.messages_server import MessagesServer, Say
from tests.support.system import Json, System, leftovers, loom, plain_agent
from tests.support.until import until

pytestmark = pytest.mark.journey

KILLS = 3
TURNS = 8
"""Submitted between two kills."""


def submitted(system: System, kill: int) -> list[str]:
    return [system.submit(f"s{number % 4}", f"Turn {kill}.{number}") for number in range(TURNS)]


def shown(system: System, turn_id: str) -> tuple[Json, list[Json]]:
    turn = system.turn(turn_id)
    return turn, [each for each in system.messages(turn["session_id"]) if each["turn_id"] == turn_id]


def cut_short(system: System, file: Path) -> None:
    """A backup that is killed as soon as it has begun to write."""
    process = subprocess.Popen(loom("backup", str(file), "--force"), env=system.environ, stderr=subprocess.DEVNULL)
    until(lambda: process.poll() is not None or list(file.parent.glob(f".{file.name}.*")), 30, "it writes, or is done")
    process.send_signal(signal.SIGKILL)
    process.wait()


@pytest.mark.timeout(300)  # two starts of a whole Loom
def test_a_loom_restored_from_a_backup_taken_under_kills_has_all_that_had_ended_and_ends_the_rest(
    tmp_path: Path,
) -> None:
    file = tmp_path / "copy" / "loom.db"
    file.parent.mkdir()
    agents = plain_agent(tmp_path / "agents")
    with MessagesServer(script=lambda body: Say("Done.")) as server:
        environ = {"ANTHROPIC_BASE_URL": server.url, "LOOM_AGENTS_DIR": agents}
        with System(tmp_path / "home", **environ) as system:
            victims, before, accepted = cycle(["worker-1", "worker-2", "worker-3"]), {}, list[str]()
            for kill in range(KILLS):
                accepted += submitted(system, kill)
                system.kill(next(victims))
                ended = [turn_id for turn_id in accepted if system.turn(turn_id)["status"] == "completed"]
                before = {turn_id: shown(system, turn_id) for turn_id in ended}
                made = system.run("backup", str(file), "--force")
                assert made.returncode == 0, made.stderr
                whole = file.read_bytes()
                cut_short(system, tmp_path / "copy" / "other.db")
                assert file.read_bytes() == whole
                assert flaws(file, is_full=True) == ()
            later = system.submit("s0", "After the backup")
            for name in [name for name in system.children if name.startswith("worker-")]:
                system.kill(name)
            system.kill_supervisor()
            until(lambda: not leftovers(system.home), 20, "nothing is left running")
            put_back(system.home, file)
            system.start()
            assert {turn_id: shown(system, turn_id) for turn_id in before} == before
            assert {system.ended(turn_id)["status"] for turn_id in accepted} == {"completed"}
            assert system.get(f"/v1/turns/{later}").status == 404
            for session in {f"s{number % 4}" for number in range(TURNS)}:
                said = [each["turn_id"] for each in system.messages(session) if each["role"] == "assistant"]
                assert said == [turn_id for turn_id in accepted if turn_id in said]
            assert sorted(turn_id for (turn_id,) in system.rows("SELECT id FROM turns")) == sorted(accepted)


def put_back(home: Path, copy: Path) -> None:
    """As docs/operations.md says."""
    for end in ("", "-wal", "-shm"):
        (home / f"loom.db{end}").unlink(missing_ok=True)
    shutil.rmtree(home / "valkey", ignore_errors=True)
    shutil.copy(copy, home / "loom.db")
