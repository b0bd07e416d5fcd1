"""Over many turns Loom uses more of nothing, but for what it is to keep: conversations, and their events for a time."""

import re
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from tests.hostile.growth import Sample, sample, table
from tests.support.agents import written
from tests.support.messages_server import Behaviour, MessagesServer, Say, echo
from tests.support.messages_wire import WireCall
from tests.support.system import Json, System
from tests.support.until import until

pytestmark = [pytest.mark.journey, pytest.mark.heavy, pytest.mark.takes(50)]

AGENTS: dict[str, Json] = {"worker": {"backend": False, "tools": ["handmade.py"]}}
CALLERS = 8
TURNS_A_SESSION = 25
LETTER = "A line of a long letter from a stranger.\n" * 800
"""More than LOOM_REFERENCE_BYTES: a large result, kept in a file."""


KEEPS = frozenset({"valkey", "flower"})
"""Their memory grows with what they are to keep: events until their time is over, and Flower's latest 5,000 tasks."""
ALIKE = dict.fromkeys(("worker-1", "worker-2"), "workers for turns")
"""They share the turns, nobody knows how."""
FEW = 10
"""A lease or a heartbeat that happens to be there."""
REDIS_BYTES_A_TURN = 500
"""270 measured: what the tables of keys need for those that go by themselves."""
LOG_BYTES_A_TURN = 1000
"""310 measured; a file that has 10 MB is put aside, and three are kept."""
WAL_BYTES = 32 * 1024 * 1024
"""SQLite writes it back when it has 4 MB, and readers may hold that up for a while; 10.6 measured."""
TOOL_PROCESSES = 12
LONG_MEMORY_KB_A_TURN = 10
"""7.2 measured for both workers: what was read of sessions (half of it, up to 32 MiB a process), tokens that were
counted, sizes of turns. Those have their limits, and none of them is reached in five thousand turns."""


@dataclass(frozen=True)
class Bounds:
    """By how much a process may grow."""

    fds: int
    threads: int
    memory_kb_a_turn: float
    """Of those that are alike, together."""


def script(body: Json) -> Behaviour:
    """Of ten turns one calls a tool; of fifty one calls it wrongly, and one gets a large result."""
    if "tools" not in body:
        return Say("[]" if "JSON" in body["system"][0]["text"] else "They talked of turns.")
    said = re.fullmatch(r"This is turn (\d+)", body["messages"][-1]["content"][-1].get("text", ""))
    number = int(said[1]) if said else 0
    call_id = f"toolu_{len(body['messages'])}"
    if number % 50 == 7:
        return Say("I read.", [WireCall(call_id, "letter", {})])
    if number % 10 == 3:
        return Say("I count.", [WireCall(call_id, "count", {"n": -1 if number % 50 == 13 else number})])
    return echo(body)


class Load:
    """Callers that each hand in one turn after the other."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._sent = 0

    def run(self, turns: int) -> Sample:
        """So many turns more; what Loom uses when all are done."""
        numbers = range(self._sent, self._sent + turns)
        self._sent += turns
        with ThreadPoolExecutor(CALLERS) as callers:
            list(callers.map(self._call, [numbers[first::CALLERS] for first in range(CALLERS)]))
        until(self._is_quiet, 60, "nothing is left to do")
        return sample(self._system)

    def _call(self, numbers: range) -> None:
        for number in numbers:
            session = f"s{number % CALLERS}-{number // CALLERS // TURNS_A_SESSION}"
            body = {"input": f"This is turn {number}", "agent": "worker"}
            said = self._system.post(f"/v1/sessions/{session}/turns", body, {"Prefer": "wait=60"})
            assert (said.status, said.json["status"]) == (200, "completed"), said.text

    def _is_quiet(self) -> bool:
        """No summary is due, and no large result is left: those go when their time is over."""
        due = self._system.rows("SELECT 1 FROM memory WHERE due_ms IS NOT NULL OR held_by IS NOT NULL LIMIT 1")
        blobs = self._system.home / "blobs"
        return not due and not any(file.is_file() for file in blobs.rglob("*"))


@pytest.fixture
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    place = tmp_path_factory.mktemp("growth")
    agents = written(place / "agents", AGENTS)
    Path(agents, "letter.txt").write_text(LETTER)
    environ = {"LOOM_AGENTS_DIR": agents, "LOOM_BLOB_TTL_S": "1", "LOOM_WORKER_CONCURRENCY": "8"}
    with (
        MessagesServer(script=script, keeps=10) as server,
        System(place / "home", ANTHROPIC_BASE_URL=server.url, **environ) as system,
    ):
        yield system


def grown(first: Sample, last: Sample, bounds: Bounds) -> list[str]:
    """What Loom uses more of at the last look than at the first, beyond the bounds."""
    found = []
    memory_kb: Counter[str] = Counter()
    for name, before in first.processes.items():
        after = last.processes[name]
        wrong = {
            "it is another process": after.pid != before.pid,
            "file descriptors": after.fds - before.fds > bounds.fds,
            "threads": after.threads - before.threads > bounds.threads,
        }
        found += [f"{name}: {what}" for what, is_wrong in wrong.items() if is_wrong]
        memory_kb[ALIKE.get(name, name)] += after.memory_kb - before.memory_kb
    a_turn = {name: kb / (last.turns - first.turns) for name, kb in memory_kb.items() if name not in KEEPS}
    found += [f"{name}: memory, {kb:.1f} kB a turn" for name, kb in a_turn.items() if kb > bounds.memory_kb_a_turn]
    return found + [f"{what}: {used:.0f}" for what, used, most in _elsewhere(first, last) if used > most]


def _elsewhere(first: Sample, last: Sample) -> Iterator[tuple[str, float, float]]:
    """What is used outside the processes: what it is, how much, and how much may be."""
    turns = last.turns - first.turns
    yield "keys of Redis that stay", (last.keys - first.keys).total(), FEW
    yield "bytes of Redis a turn", (last.redis_bytes - first.redis_bytes) / turns, REDIS_BYTES_A_TURN
    yield "bytes a turn of keys that go", last.passing_bytes / last.turns, 1.2 * first.passing_bytes / first.turns
    yield "processes of tools", last.children, TOOL_PROCESSES
    yield "files in the home", last.files - first.files, FEW
    yield "bytes of logs a turn", (last.log_bytes - first.log_bytes) / turns, LOG_BYTES_A_TURN
    yield "bytes of the write-ahead log", last.wal_bytes, WAL_BYTES


@pytest.mark.timeout(480)
def test_of_a_few_hundred_turns_none_leaves_a_thread_a_file_a_key_or_its_memory_behind(system: System) -> None:
    load = Load(system)
    looks = [load.run(480), load.run(240)]
    if _leaked(looks):
        looks.append(load.run(240))  # what leaks goes on with it; pools and caches that filled late do not
    assert _leaked(looks) == [], f"\n{table(looks)}"


def _leaked(looks: list[Sample]) -> list[str]:
    return grown(*looks[-2:], Bounds(fds=40, threads=40, memory_kb_a_turn=20))


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_of_five_thousand_turns_the_last_need_no_more_than_the_first(system: System) -> None:
    load = Load(system)
    samples = [load.run(500) for _ in range(10)]
    told = table(samples)
    sys.stdout.write(f"\n{told}\n")
    warm = samples[1:]  # pools are full, and caches have their size
    bounds = Bounds(fds=20, threads=10, memory_kb_a_turn=LONG_MEMORY_KB_A_TURN)
    assert grown(warm[0], warm[-1], bounds) == [], f"\n{told}"
    sizes = [(b.database_bytes - a.database_bytes) / (b.turns - a.turns) for a, b in pairwise(warm)]
    assert sizes[-1] <= 1.1 * sizes[0], f"bytes a turn in the database: {sizes}\n{told}"
