"""Measure large results: `python -m bench.blobs [--rounds 200]`. A table, beside what the design promises.

Both tiers are measured apart, on a Valkey of this run and a folder in the temporary place; then all that the keeping
of a result costs, and the next question about it. Compression, and what a preview costs the context.
"""

import argparse
import json
import os
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import redis

from bench.search import Talk
from bench.stats import percentile, short
from loom_worker.blobs.blobs import packed
from loom_worker.blobs.disk import DiskTier
from loom_worker.blobs.memory import MemoryTier
from loom_worker.core.settings import BlobSettings, from_env
from loom_worker.core.values.sessions import NewSession
from loom_worker.core.values.tools import Caller
from loom_worker.llm.tokens import cl100k_tokens
from loom_worker.store.blobs import BlobRows
from loom_worker.store.database import Database
from loom_worker.store.prepare import prepare
from loom_worker.store.sessions import Sessions
from loom_worker.tools.references import References, stores
from loom_worker.tools.result_tools import result_tools
from tests.support.valkey import Valkey

SIZES = {"20 KB": 20_000, "200 KB": 200_000, "1.3 MB": 1_300_000}
PROMISED = {
    ("memory", "write"): "< 5",
    ("memory", "read"): "< 1",
    ("disk", "write"): "10-30",
    ("disk", "read"): "5-15",
    ("all of it", "keep"): "8-35",
    ("all of it", "read"): "< 1-15",
    ("all of it", "query, first"): "-",
    ("all of it", "query, later"): "-",
    ("all of it", "page"): "-",
}
SQL = "SELECT status, count(*), sum(price) FROM result GROUP BY status"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as home, Valkey() as server:
        client = redis.Redis.from_url(server.url)
        print("| tier | what | size | p50 ms | p99 ms | promised ms |\n| --- | --- | --- | --- | --- | --- |")
        tiers(Path(home), client, rounds)
        whole(Path(home), client, rounds)
        print("\n| text | bytes | stored | ratio |\n| --- | --- | --- | --- |")
        ratios()
        client.close()


def tiers(home: Path, client: Any, rounds: int) -> None:
    """Each by itself: stored bytes of results, as many as there are of either."""
    tiers = {"memory": MemoryTier(client, most_bytes=10**9, ttl_s=600), "disk": DiskTier(home / "tier")}
    for name, tier in tiers.items():
        for told, size in SIZES.items():
            data = packed(rows_text(size).encode())
            assert data is not None
            refs = [f"ref_{os.urandom(16).hex()}" for _ in range(rounds)]
            writes = [timed(lambda ref=ref, tier=tier, data=data: tier.put(ref, data)) for ref in refs]
            reads = [timed(lambda ref=ref, tier=tier, size=size: tier.get(ref, most_bytes=size)) for ref in refs]
            line((name, "write"), told, writes)
            line((name, "read"), told, reads)


def whole(home: Path, client: Any, rounds: int) -> None:
    """What a tool's result goes through: its rows found, compressed, summed, kept twice, its row inserted."""
    settings = from_env({"LOOM_HOME": str(home)})
    prepare(settings)
    database = Database(settings.database_url)
    lane = Sessions(database).create("bench", NewSession(id="s1"), now_ms=1).lane
    caller = Caller(lane, "s1", "bench", "turn_1", "toolu_1")
    blobs = BlobSettings(folder=home / "blobs")
    references = References(stores(blobs, BlobRows(database), client), blobs)
    get, query = result_tools(references, reference_bytes=16_384)
    cl100k_tokens("loaded before it is timed")
    for told, size in SIZES.items():
        text, kept = rows_text(size), list[Any]()
        keep: Callable[[], None] = lambda text=text, kept=kept: kept.append(  # noqa: E731
            references.keep(text, "application/json", caller, tool="execute_sql", count=cl100k_tokens)
        )
        few = max(10, rounds // 10)
        line(("all of it", "keep"), told, [timed(keep) for _ in range(few)])
        asked = [{"ref": each.reference.id, "sql": SQL} for each in kept]
        line(("all of it", "read"), told, [timed(lambda a=a: references.read(a["ref"], caller)) for a in asked])
        line(("all of it", "page"), told, [timed(lambda a=a: get.run({"ref": a["ref"]}, caller)) for a in asked])
        for which in ("first", "later"):
            taken = [timed(lambda a=a: query.run(a, caller)) for a in asked]
            line(("all of it", f"query, {which}"), told, taken)
        tokens = cl100k_tokens(kept[0].preview)
        print(f"| preview | tokens | {told} | {tokens} | | < 100 (inline: {cl100k_tokens(text):,}) |")
    database.close()


def ratios() -> None:
    """Compression of what tools give."""
    talk = Talk(random.Random(3))
    rows = json.loads(rows_text(1_300_000))
    texts = {
        "JSON rows": rows_text(1_300_000),
        "JSON objects": json.dumps([dict(zip(rows["columns"], row, strict=True)) for row in rows["rows"]]),
        "CSV": "\n".join(",".join(map(str, row)) for row in rows["rows"]),
        "prose": ". ".join(talk.sentence(12) for _ in range(15_000)),
    }
    for name, text in texts.items():
        data = text.encode()
        stored = packed(data)
        assert stored is not None
        print(f"| {name} | {len(data):,} | {len(stored):,} | {short(len(data) / len(stored))} |")


def rows_text(size: int) -> str:
    """Rows of orders as a query gives them, of about that many bytes: 10,000 of them have 1.3 MB."""
    chance = random.Random(5)
    columns = ["id", "customer", "email", "product", "price", "quantity", "ordered_at", "status"]
    rows = [
        [
            100_000 + n,
            f"Customer {chance.randint(1, 4_000)}",
            f"{chance.getrandbits(40):x}@example.com",
            f"Product {chance.randint(1, 500)} of the shop",
            round(chance.random() * 900, 2),
            chance.randint(1, 9),
            f"2026-{chance.randint(1, 12):02}-{chance.randint(1, 28):02}T{chance.randint(0, 23):02}:15:00Z",
            chance.choice(["paid", "sent", "returned"]),
        ]
        for n in range(size // 130)
    ]
    return json.dumps({"columns": columns, "rows": rows})


def timed(action: Callable[[], object]) -> float:
    """Milliseconds."""
    began_s = time.perf_counter()
    action()
    return (time.perf_counter() - began_s) * 1000


def line(what: tuple[str, str], size: str, taken_ms: Sequence[float]) -> None:
    """Print one."""
    figures = f"{short(percentile(taken_ms, 50))} | {short(percentile(taken_ms, 99))}"
    print(f"| {what[0]} | {what[1]} | {size} | {figures} | {PROMISED[what]} |", flush=True)


if __name__ == "__main__":
    main()
