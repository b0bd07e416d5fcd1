"""`loom backup` beside a Loom that works, and a second Loom that goes on from the copy."""

import json
import threading
from collections.abc import Iterator

import pytest

from tests.support.hanging import Hanging
from tests.support.messages_server import MessagesServer
from tests.support.system import Json, System, plain_agent, rows
from tests.support.until import until

pytestmark = [pytest.mark.journey, pytest.mark.heavy, pytest.mark.takes(45)]

LEAST_TURNS = 20
"""Turns that have ended before the first backup begins."""
BACKUPS = 3


@pytest.fixture
def script() -> Iterator[Hanging]:
    script = Hanging()
    yield script
    script.release.set()


class Callers:
    """Threads that submit one turn after the other, each to a session of its own."""

    def __init__(self, system: System, *, count: int) -> None:
        self.ended: list[Json] = []
        self._system = system
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(f"s{n}",)) for n in range(count)]

    def __enter__(self) -> "Callers":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def get_on(self) -> None:
        """Return when one more turn has ended."""
        seen = len(self.ended)
        until(lambda: len(self.ended) > seen, 30, "turns go on ending")

    def _run(self, session: str) -> None:
        while not self._stop.is_set():
            headers = {"Prefer": "wait=30"}
            said = self._system.post(f"/v1/sessions/{session}/turns", {"input": f"hello {session}"}, headers)
            assert said.status == 200, said.text
            self.ended.append(said.json)


def told_of(system: System, turn: Json) -> tuple[Json, list[Json]]:
    """A turn and its messages, as the API tells them."""
    messages = [one for one in system.messages(turn["session_id"]) if one["turn_id"] == turn["id"]]
    return system.turn(turn["id"]), messages


def test_a_second_loom_on_a_copy_made_under_load_has_all_that_had_ended_and_ends_the_rest(
    script: Hanging, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("backup")
    agents = plain_agent(folder / "agents")
    with MessagesServer(script=script) as server:
        environ = {"ANTHROPIC_BASE_URL": server.url, "LOOM_AGENTS_DIR": agents}
        with System(folder / "home", **environ) as system:
            running = system.submit("waits", "Wait.")
            until(lambda: system.holder(running), 20, "the turn runs")
            queued = system.submit("waits", "and then?")
            file = folder / "copy.db"
            with Callers(system, count=4) as callers:
                until(lambda: len(callers.ended) >= LEAST_TURNS, 60, "turns have ended")
                for _ in range(BACKUPS):
                    ended = list(callers.ended)
                    made = system.run("backup", str(file), "--force", "--json")
                    assert made.returncode == 0, made.stderr
                    callers.get_on()
            report = json.loads(made.stdout)
            assert report["turns"] == rows(file, "SELECT count(*) FROM turns")[0][0]
            assert report["turns"] >= len(ended) + 2
            before = [told_of(system, turn) for turn in ended]
            script.release.set()

        home = folder / "second"
        home.mkdir()
        file.rename(home / "loom.db")
        with System(home, **environ) as second:
            assert [told_of(second, turn) for turn in ended] == before
            for turn_id in (running, queued):
                assert second.ended(turn_id)["status"] == "completed"
            unfinished = "SELECT id FROM turns WHERE status IN ('queued', 'in_progress', 'requires_action')"
            until(lambda: not second.rows(unfinished), 60, "everything in the copy has ended")
            bad = "SELECT id, status, reason FROM turns WHERE status <> 'completed'"
            assert second.rows(bad) == []
            said = [(one["turn_id"], one["role"]) for one in second.messages("waits")]
            assert said == [(turn_id, role) for turn_id in (running, queued) for role in ("user", "assistant")]
            assert second.ended(second.submit("waits", "a new one"))["status"] == "completed"
