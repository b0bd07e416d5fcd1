"""Large results over a real Valkey that is killed, with workers that share it and die."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from loom_worker.blobs.memory import INDEX, MemoryTier
from loom_worker.core.settings_tree import BlobSettings
from loom_worker.core.values.tools import Caller
from loom_worker.store.blobs import BlobRows
from loom_worker.store.database import Database
from loom_worker.tools.references import References, stores
from tests.support.at_once import at_once
from tests.support.valkey import Valkey
from tests.unit.blobs.made import BOUND, new_ref
from tests.unit.store.made import running
from tests.unit.tools.results.made import caller_of, keep, table

pytestmark = [pytest.mark.heavy, pytest.mark.integration]


@pytest.fixture
def server() -> Iterator[Valkey]:
    """One of its own, to be killed."""
    with Valkey() as server:
        yield server


def references(database: Database, url: str, folder: Path, **fields: Any) -> References:
    settings = BlobSettings(folder=folder / "blobs", **fields)
    client = redis.Redis.from_url(url, socket_timeout=20)
    return References(stores(settings, BlobRows(database), client), settings)


@pytest.fixture
def caller(database: Database) -> Caller:
    return caller_of(running(database))


def test_results_outlive_the_death_of_redis(server: Valkey, database: Database, caller: Caller, tmp_path: Path) -> None:
    store = references(database, server.url, tmp_path)
    ref = keep(store, table(2_000), caller).reference.id
    assert store.read(ref, caller)[0].location == "memory"
    server.kill()
    reference, data = store.read(ref, caller)
    assert (reference.location, data.decode()) == ("disk", table(2_000))
    later = keep(store, table(500), caller).reference.id
    server.start()
    assert [store.read(ref, caller)[0].location for _ in range(2)] == ["disk", "memory"]
    assert store.read(later, caller)[1].decode() == table(500)


def test_many_writers_at_once_keep_within_one_bound(server: Valkey) -> None:
    clients = [redis.Redis.from_url(server.url, socket_timeout=20) for _ in range(4)]
    over: list[int] = []

    def write(client: Any) -> None:
        memory = MemoryTier(client, most_bytes=BOUND, ttl_s=60)
        for _ in range(100):
            memory.put(ref := new_ref(), b"x" * 1_500)
            memory.get(ref, most_bytes=BOUND)
            over.extend(held for held in [memory.usage().stored_bytes] if held > BOUND)

    at_once(write, clients)
    sizes = [clients[0].strlen(b"loom:blob:" + each.split(b":")[1]) for each in clients[0].zrange(INDEX, 0, -1)]
    assert (over, len(sizes), sum(sizes)) == ([], 6, 9_000)
    assert len(clients[0].keys("loom:blob:ref_*")) == 6
    for client in clients:
        client.close()


WRITER = """
import sys
from pathlib import Path
import redis
from loom_worker.tools.references import References, stores
from loom_worker.core.settings_tree import BlobSettings
from loom_worker.store.blobs import BlobRows
from loom_worker.store.database import Database
from loom_worker.core.values.tools import Caller

settings = BlobSettings(folder=Path(sys.argv[2]))
client = redis.Redis.from_url(sys.argv[4])
references = References(stores(settings, BlobRows(Database(sys.argv[1])), client), settings)
caller = Caller(sys.argv[3], "s1", "acme", "turn_1", "toolu_1")
for n in range(100000):
    kept = references.keep(f"{n:6} " * 5000, "text/plain", caller, tool="look", count=len)
    print(kept.reference.id, flush=True)
"""


def test_whatever_a_killed_worker_told_of_can_be_read(
    server: Valkey, database: Database, settings: Any, caller: Caller, tmp_path: Path
) -> None:
    arguments = [settings.database_url, str(tmp_path / "blobs"), caller.lane, server.url]
    store, told = references(database, server.url, tmp_path), []
    for _ in range(3):
        command = [sys.executable, "-c", WRITER, *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
            assert worker.stdout is not None
            told += [worker.stdout.readline().strip() for _ in range(12)]
            worker.kill()
        assert worker.returncode == -signal.SIGKILL
    for ref in told:
        reference, data = store.read(ref, caller)
        assert len(data) == reference.size_bytes == 35_000
    server.kill()
    assert all(store.read(ref, caller)[0].location == "disk" for ref in told[:3])
