"""A disk that is full, and a file that is damaged, under a Loom that runs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.disks import SPOILED, filled, small_disk, spoil
from tests.support.hanging import Hanging
from tests.support.messages_server import MessagesServer
from tests.support.runbook import follow
from tests.support.system import System, plain_agent
from tests.support.until import until

pytestmark = [pytest.mark.journey, pytest.mark.heavy, pytest.mark.takes(50)]


@pytest.fixture
def script() -> Iterator[Hanging]:
    script = Hanging()
    yield script
    script.release.set()


@pytest.fixture
def server(script: Hanging) -> Iterator[MessagesServer]:
    with MessagesServer(script=script) as server:
        yield server


def logs(system: System, name: str) -> str:
    return "".join(path.read_text() for path in (system.home / "logs").glob(f"{name}*.log"))


def test_a_full_disk_refuses_new_turns_by_name_and_loses_none_of_the_old(
    server: MessagesServer, tmp_path: Path
) -> None:
    agents = plain_agent(tmp_path / "agents")
    with small_disk(tmp_path / "disk", size_bytes=8 << 20) as disk:
        environ = {"LOOM_DATABASE_URL": f"sqlite:///{disk}/loom.db", "LOOM_SQLITE_SYNC": "full"}
        with System(tmp_path / "home", ANTHROPIC_BASE_URL=server.url, LOOM_AGENTS_DIR=agents, **environ) as system:
            first = system.ended(system.submit("s", "hello"))
            accepted = []
            with filled(disk):
                body = {"input": "x" * 200_000}
                for _ in range(40):  # what the -wal had kept free is used up at first
                    answer = system.post("/v1/sessions/s/turns", body)
                    if answer.status == 503:
                        break
                    accepted.append(answer.json["id"])
                assert (answer.status, answer.json["type"]) == (503, "/problems/storage-full")
                assert "disk is full" in answer.json["detail"]
                assert str(disk) not in answer.text
                assert system.turn(first["id"]) == first
            for turn_id in accepted:
                assert system.ended(turn_id)["status"] == "completed"
            assert system.ended(system.submit("s", "there is room again"))["status"] == "completed"
            assert f"{disk}/loom.db has no room: the disk is full" in logs(system, "web")


def test_a_file_that_is_damaged_under_a_running_loom_is_told_kept_and_replaced_by_its_backup(
    script: Hanging, server: MessagesServer, tmp_path: Path
) -> None:
    home, file = tmp_path / "home", tmp_path / "copy.db"
    with System(home, ANTHROPIC_BASE_URL=server.url, LOOM_AGENTS_DIR=plain_agent(tmp_path / "agents")) as system:
        first = system.ended(system.submit("s", "hello"))
        running = system.submit("waits", "Wait.")
        until(lambda: system.holder(running), 20, "the turn runs")
        follow(system, "backup", BACKUP=str(file))
        lost = system.ended(system.submit("s", "after the backup"))
        database = home / "loom.db"
        spoil(database, "turns")
        script.release.set()
        until(lambda: f"{database} is damaged" in logs(system, "worker-"), 20, "the worker meets the damage")

        answers = [system.post("/v1/sessions/other/turns", {"input": "hello"}) for _ in range(3)]
        assert {(one.status, one.json["type"]) for one in answers} == {(503, "/problems/storage-damaged")}
        assert {one.json["type"] for one in (system.get("/v1/turns"), system.get(f"/v1/turns/{lost['id']}"))} == {
            "/problems/storage-damaged"
        }
        assert f"{database} is damaged" in logs(system, "web")
        assert "`loom doctor`" in logs(system, "web")
        doctor = system.run("doctor")
        assert doctor.returncode == 1
        assert "problem  database contents" in doctor.stdout
        assert "restore a backup" in doctor.stdout
        assert system.run("backup", str(file), "--force").returncode == 1

        follow(system, "restore", BACKUP=str(file))
        system.stopped()
        assert SPOILED in (home / "loom.db.damaged").read_bytes()
        system.start()
        assert system.turn(first["id"]) == first
        assert system.ended(running)["status"] == "completed"
        assert system.get(f"/v1/turns/{lost['id']}").status == 404
        again = system.ended(system.submit("s", "after the restore"))
        assert (again["status"], again["seq"]) == ("completed", lost["seq"])
        assert [one["turn_id"] for one in system.messages("s")] == [first["id"], first["id"], again["id"], again["id"]]
