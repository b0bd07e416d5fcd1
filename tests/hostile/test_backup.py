"""Backups that are made while workers are killed, and a home that is restored from one of them."""

import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import written
from tests.support.messages_server import Behaviour, MessagesServer, Say, echo
from tests.support.messages_wire import WireCall
from tests.support.processes import is_alive
from tests.support.system import Json, System, leftovers, rows
from tests.support.until import until

pytestmark = [pytest.mark.journey, pytest.mark.heavy, pytest.mark.takes(60)]

BACKUPS = 3
"""One worker is killed during each; `loom up` gives up if one of them dies five times in a minute."""
FEEDERS = 3
AHEAD = 8
"""Turns that a session is given before the first of them has ended."""
AGENTS: dict[str, Json] = {"worker": {"backend": False, "tools": ["handmade.py:count"]}}
UNFINISHED = "SELECT id FROM turns WHERE status IN ('queued', 'in_progress', 'requires_action')"
ENDED = "SELECT id, output_text FROM turns WHERE status = 'completed'"
KNOWN = "SELECT id, session_id, input, status, output_text FROM turns ORDER BY session_id, seq"
SAID = "SELECT id, role, content FROM messages WHERE turn_id IN (SELECT id FROM turns WHERE status = 'completed')"
"""What was said in turns that had ended."""


def script(body: Json) -> Behaviour:
    """An echo; for every other turn after a call of a tool."""
    last = body["messages"][-1]["content"][-1]
    if last["type"] == "text" and "count" in last["text"]:
        return Say("I count.", [WireCall(f"toolu_{len(body['messages'])}", "count", {"n": 1})])
    return echo(body)


def roles(text: str) -> tuple[str, ...]:
    """Of the messages of a turn with this input."""
    return ("user", "assistant", "tool", "assistant") if "count" in text else ("user", "assistant")


class Feeders:
    """Threads that submit turns to a session each, some ahead of the one that runs."""

    def __init__(self, system: System) -> None:
        self.accepted: list[str] = []
        self._system = system
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(f"s{n}",)) for n in range(FEEDERS)]

    def __enter__(self) -> "Feeders":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, session: str) -> None:
        mine: list[str] = []
        while not self._stop.is_set():
            text = f"{'count' if len(mine) % 2 else 'say'} {len(mine)}"
            mine.append(self._system.submit(session, text, agent="worker"))
            self.accepted.append(mine[-1])
            if len(mine) > AHEAD:
                self._system.ended(mine[-AHEAD])


def held(system: System) -> list[str]:
    """Workers that live and have a turn or a call under way."""
    turns = system.rows("SELECT id FROM turns WHERE held_by IS NOT NULL")
    calls = system.rows("SELECT turn_id FROM calls WHERE status = 'running'")
    found = [*(system.holder(row[0]) for row in turns), *(system.tool_worker(row[0]) for row in calls)]
    return [name for name in found if name is not None and is_alive(system.children[name])]


def backed_up(system: System, file: Path, killed: dict[str, int]) -> None:
    """Make a backup and kill a worker that is at work meanwhile; the backup is whole and has all that had ended.

    Args:
        killed: how often each worker was.
    """
    ended = system.rows(ENDED)
    making = system.begin("backup", str(file), "--json")
    drafts = f".{file.name}.*.part"
    until(lambda: any(file.parent.glob(drafts)) or making.poll() is not None, 60, "the copy is begun")
    name = min(until(lambda: held(system), 60, "a worker is at work"), key=lambda name: killed.get(name, 0))
    system.kill(name)
    killed[name] = killed.get(name, 0) + 1
    said, complaint = making.communicate(timeout=60)
    assert making.returncode == 0, complaint
    assert json.loads(said)["turns"] == rows(file, "SELECT count(*) FROM turns")[0][0] > 0
    assert set(ended) <= set(rows(file, ENDED))
    assert rows(file, "PRAGMA integrity_check") == [("ok",)]
    assert rows(file, "PRAGMA foreign_key_check") == []
    assert rows(file, "SELECT turn_id FROM messages WHERE turn_id NOT IN (SELECT id FROM turns)") == []
    assert not any(file.parent.glob(drafts))


def restored(backup: Path, home: Path) -> None:
    """Put a backup in the place of a home's database, as docs/operations.md tells."""
    (home / "loom.db").rename(home / "loom.db.damaged")
    for end in ("-wal", "-shm"):
        (home / f"loom.db{end}").unlink(missing_ok=True)
    shutil.rmtree(home / "valkey")
    shutil.copy(backup, home / "loom.db")


@pytest.fixture
def server() -> Iterator[MessagesServer]:
    with MessagesServer(script=script, latency_s=0.03) as server:
        yield server


def test_each_backup_under_kills_is_whole_and_a_home_restored_from_one_ends_all_that_it_knows_once_and_in_order(
    server: MessagesServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("backups")
    environ = {
        "ANTHROPIC_BASE_URL": server.url,
        "LOOM_AGENTS_DIR": written(folder / "agents", AGENTS),
        "LOOM_MAX_ATTEMPTS": "20",  # a kill is no fault of the turn
    }
    files = [folder / f"{n}.db" for n in range(BACKUPS)]
    killed: dict[str, int] = {}
    with System(folder / "home", **environ) as system:
        with Feeders(system) as feeders:
            for file in files:
                backed_up(system, file, killed)
        assert sum(killed.values()) == BACKUPS
        system.kill_supervisor()
        until(lambda: not leftovers(system.home), 10, "the first Loom is dead")

    chosen = next(file for file in reversed(files) if rows(file, UNFINISHED))
    known = rows(chosen, KNOWN)
    said_before = rows(chosen, SAID)
    later = set(feeders.accepted) - {row[0] for row in known}
    shutil.copytree(folder / "home", folder / "second", ignore=shutil.ignore_patterns("*.sock"))
    restored(chosen, folder / "second")
    with System(folder / "second", **environ) as second:
        until(lambda: not second.rows(UNFINISHED), 60, "all that the backup knows has ended")
        now = second.rows(KNOWN)
        assert [row[:3] for row in now] == [row[:3] for row in known]
        assert [row for row in now if row[3] != "completed"] == []
        assert [row for row in known if row[3] == "completed" and row not in now] == []
        assert set(said_before) <= set(second.rows(SAID))
        for session in {row[1] for row in known}:
            said = [(turn_id, role) for turn_id, _, role in spoken(second, session)]
            turns = [row for row in known if row[1] == session]
            assert said == [(row[0], role) for row in turns for role in roles(row[2])]
        assert [second.get(f"/v1/turns/{turn_id}").status for turn_id in sorted(later)[:3]] == [404] * min(
            len(later), 3
        )
        assert second.ended(second.submit("s0", "say it", agent="worker"))["status"] == "completed"


def spoken(system: System, session: str) -> list[Any]:
    """Turn, id and role of all messages of a session, of which there may be more than a page."""
    return system.rows("SELECT turn_id, id, role FROM messages WHERE session_id = ? ORDER BY n", session)
