"""Measure search by meaning: `python -m bench.vectors [--messages 100000]`. One JSON line a figure.

Recall needs LOOM_TEST_DATA: over its dialogues with the full text alone, the vectors alone and both fused. Unless
--model names another embedding model, words are hashed, which finds little that the full text does not: it shows what
fusion costs where vectors add nothing. Then what a vector takes: time to insert, bytes on disk, and time to search all
messages of one session, by sqlite-vec and by numpy.
"""

import argparse
import gzip
import json
import os
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.search import ASKED, Talk
from bench.search_data import WORKSPACE, database, figure, load
from bench.search_recall import said
from bench.stats import percentile
from loom_worker.core.settings import from_env
from loom_worker.llm import tokens
from loom_worker.llm.embeddings import BATCH_TEXTS, Embedder, cut
from loom_worker.memory.semantic import LEAST_DEPTH, WORDS_DEPTH, fused
from loom_worker.runtime.embedders import adapter
from loom_worker.store.database import Database
from loom_worker.store.search import Search
from loom_worker.store.sessions import Sessions
from loom_worker.store.vector_scan import NumpyScan, scan_of
from loom_worker.store.vectors import MessageVectors, Reach

MODEL = "scripted/hash"
DIMENSIONS = (256, 1024)
SHOWN = 10


def main() -> None:
    """Recall, then insertion and latency at --messages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--model", default=MODEL, help="provider/model, with its settings in the environment")
    given = parser.parse_args()
    data = os.environ.get("LOOM_TEST_DATA")
    if data:
        dialogues = json.loads(gzip.decompress((Path(data) / "dialogues" / "dialogues3.json.gz").read_bytes()))
        recalls(dialogues, adapter(given.model, from_env()))
    for dimensions in DIMENSIONS:
        with database() as store:
            latencies(store, count=given.messages, dimensions=dimensions)


def recalls(dialogues: Sequence[Any], embedder: Embedder) -> None:
    """Share of the evidence among the first ten hits of each ranking, the mean over all questions."""
    found: dict[str, list[float]] = {"full text": [], "vectors": [], "fused": []}
    with database() as store:
        vectors, search = MessageVectors(store), Search(store)
        for dialogue in dialogues:
            load(store, dialogue["id"], said(dialogue))
            lane = Sessions(store).get(WORKSPACE, dialogue["id"]).lane
            embed_all(vectors, lane, embedder)
            ids = ids_of(store, lane)
            for asked in dialogue["questions"]:
                wanted = {f"{dialogue['id']}/{each}" for each in asked["evidence"]}
                hits = search.lane(lane, asked["question"], limit=WORDS_DEPTH)
                worded = [(hit.message.n, hit.hit.score) for hit in hits]
                [query] = embedded(embedder, [asked["question"]], kind="query")
                near = vectors.nearest(Reach(lane), embedder.name, query, k=LEAST_DEPTH)
                for name, ranking in (("full text", worded), ("vectors", near), ("fused", fused(worded, near))):
                    found[name].append(len(wanted & {ids[n] for n, _ in ranking[:SHOWN]}) / len(wanted))
    for name, shares in found.items():
        figure(f"recall@10, {name}", 100 * sum(shares) / len(shares), "%", model=embedder.name)


def embed_all(vectors: MessageVectors, lane: str, embedder: Embedder) -> None:
    """Give all messages of a session their vectors."""
    while (due := vectors.unembedded(lane, embedder.name, limit=BATCH_TEXTS, most_chars=64_000)).texts:
        found = dict(zip(due.texts, embedded(embedder, list(due.texts.values()), kind="document"), strict=True))
        assert vectors.add(lane, embedder.name, due, found, charge=None, now_ms=0)


def embedded(embedder: Embedder, texts: Sequence[str], *, kind: Any) -> Sequence[Sequence[float]]:
    """The vectors of texts, cut as a worker cuts them."""
    short = [cut(text, lambda part: tokens.count(part, model=embedder.name)) for text in texts]
    return embedder.embed(short, kind=kind, timeout_s=60, may_be_sent=lambda: True).vectors


def ids_of(store: Database, lane: str) -> dict[int, str]:
    """The ids of a session's messages by their numbers."""
    with store.read() as tx:
        return {row[0]: row[1] for row in tx.exec_driver_sql("SELECT n, id FROM messages WHERE lane = ?", (lane,))}


def latencies(store: Database, *, count: int, dimensions: int) -> None:
    """Give so many messages of one session random vectors, then search among them."""
    chance = random.Random(7)
    talk = Talk(chance)
    load(store, "s", [(f"s-{n}", ("user", "assistant")[n % 2], talk.sentence(5), 1) for n in range(count)])
    lane, vectors = Sessions(store).get(WORKSPACE, "s").lane, MessageVectors(store)
    told = {"messages": count, "dimensions": dimensions}
    before_bytes, taken_s = size(store), 0.0
    while (due := vectors.unembedded(lane, MODEL, limit=BATCH_TEXTS, most_chars=100)).texts:
        found = {n: [chance.gauss(0, 1) for _ in range(dimensions)] for n in due.texts}
        began_s = time.perf_counter()
        vectors.add(lane, MODEL, due, found, charge=None, now_ms=0)
        taken_s += time.perf_counter() - began_s
    figure("insert", taken_s / count * 1e6, "us a message", **told)
    figure("disk", (size(store) - before_bytes) / count, "bytes a message", **told)
    with store.read() as tx:
        scans = {scan_of(tx).name: None, NumpyScan.name: NumpyScan()}
    for name, scan in scans.items():
        searched, taken_ms = MessageVectors(store, scan=scan), []
        for _ in range(max(ASKED // 8, 10)):
            query = [chance.gauss(0, 1) for _ in range(dimensions)]
            began_s = time.perf_counter()
            searched.nearest(Reach(lane), MODEL, query, k=SHOWN)
            taken_ms.append((time.perf_counter() - began_s) * 1000)
        for share in (50, 95):
            figure(f"search by {name}, p{share}", percentile(taken_ms, share), "ms", **told)


def size(store: Database) -> int:
    """Bytes of the database, those that are still in the log included."""
    with store.read() as tx:
        pages, page = (tx.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in ("page_count", "page_size"))
    return int(pages * page)


if __name__ == "__main__":
    main()
