"""What a Loom that works for long takes of memory, Redis, database and files: no more than what is kept needs."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from loom_worker.store.space import INCREMENTAL
from tests.support.messages_server import MessagesServer, Say
from tests.support.system import System, plain_agent
from tests.support.until import until

pytestmark = pytest.mark.journey

CALLERS = 8
PER_TURN_BYTES = 12_000
"""Of the database: a turn, its journal, two messages, their index entries. Measured: 2,300."""
EVENTS_PER_TURN_BYTES = 8_000
"""Of Redis, for an hour: the event log and the mark of its end."""
EXPIRING = ("loom:events:", "loom:end:")


@dataclass(frozen=True)
class Taken:
    """What the system has taken at one moment."""

    rss_bytes: dict[str, int]
    handles: dict[str, int]
    """Open files and sockets of each process."""
    redis_bytes: int
    keys: int
    """Of Redis, but for those that expire an hour after a turn's last event."""
    database_bytes: int
    files: int
    """In the home."""


def taken(system: System) -> Taken:
    pids = {name: pid for name, pid in system.children.items() if name.startswith(("worker-", "web", "beat"))}
    with system.redis() as client:
        keys = [key for key in client.scan_iter(count=1000) if not key.startswith(EXPIRING)]
        used = int(client.info("memory")["used_memory"])
    ((pages,),) = system.rows("SELECT page_count FROM pragma_page_count")
    return Taken(
        rss_bytes={name: resident(pid) for name, pid in pids.items()},
        handles={name: len(os.listdir(f"/proc/{pid}/fd")) for name, pid in pids.items()},
        redis_bytes=used,
        keys=len(keys),
        database_bytes=pages * 4096,
        files=sum(1 for path in system.home.rglob("*") if path.is_file()),
    )


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def work(system: System, turns: int, *, sessions: int) -> None:
    """So many turns, one after the other in each session, by a few callers."""

    def ask(number: int) -> None:
        body = {"input": f"Question {number}"}
        answer = system.post(f"/v1/sessions/s{number % sessions}/turns", body, {"Prefer": "wait=60"})
        assert answer.json["status"] == "completed", answer.text

    with ThreadPoolExecutor(CALLERS) as pool:
        for _ in pool.map(ask, range(turns)):
            pass
    until(lambda: system.get("/v1/queue/stats").json["lanes"] == 0, 60, "all have ended")


@pytest.fixture
def system(tmp_path: Path) -> Iterator[System]:
    agents = plain_agent(tmp_path / "agents")
    with (
        MessagesServer(script=lambda body: Say("An answer of a few words.")) as server,
        System(tmp_path / "home", ANTHROPIC_BASE_URL=server.url, LOOM_AGENTS_DIR=agents) as system,
    ):
        yield system


def assert_bounded(first: Taken, last: Taken, turns: int, *, rss_bytes: int) -> None:
    # A worker whose first summary or call comes late loads only then what the others have loaded.
    loaded = max(first.rss_bytes.values())
    grown = {name: last.rss_bytes[name] - max(size, loaded) for name, size in first.rss_bytes.items()}
    assert max(grown.values()) < rss_bytes, grown
    # Callers' connections, and those of pools that had not been full before.
    opened = {name: last.handles[name] - count for name, count in first.handles.items()}
    assert max(opened.values()) < 40, opened
    assert last.keys - first.keys < 50
    assert last.redis_bytes - first.redis_bytes < turns * EVENTS_PER_TURN_BYTES + 8_000_000
    assert last.database_bytes - first.database_bytes < turns * PER_TURN_BYTES + 1_000_000
    assert last.files - first.files < 10


@pytest.mark.timeout(300)
def test_some_hundred_turns_take_no_more_than_what_is_kept_of_them(system: System) -> None:
    work(system, 60, sessions=10)
    first = taken(system)
    work(system, 200, sessions=10)
    assert_bounded(first, taken(system), 200, rss_bytes=40_000_000)
    assert system.rows("SELECT auto_vacuum FROM pragma_auto_vacuum") == [(INCREMENTAL,)]


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_over_thousands_of_turns_nothing_grows_but_what_is_kept(system: System) -> None:
    work(system, 1_000, sessions=200)
    samples = [taken(system)]
    for _ in range(4):
        work(system, 1_000, sessions=200)
        samples.append(taken(system))
    assert_bounded(samples[0], samples[-1], 4_000, rss_bytes=60_000_000)
    # A leak goes on; caches and pools that fill up come to an end.
    late = {name: size - samples[2].rss_bytes[name] for name, size in samples[-1].rss_bytes.items()}
    assert max(late.values()) < 25_000_000, late
