"""Measure what agents keep beside the conversation: `python -m bench.errors [--errors 10000]`. One JSON line a figure.

Errors of 3,000 characters: stored as a failed call does it, redaction and summary included, read by their id, listed
by session, tool and time. Then shared memory with 100, 1,000 and 10,000 keys in a namespace. Last, how long it takes
to look through a text for secrets. Beside each figure what the design document that Loom grew from gives for it.
"""

import argparse
import json
import os
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from bench.stats import percentile
from loom_worker.core.settings import from_env
from loom_worker.core.values.sessions import NewSession
from loom_worker.core.values.tools import Caller, ErrorFilter, Outcome
from loom_worker.guard.redact import redacted
from loom_worker.llm.tokens import cl100k_tokens
from loom_worker.store.agent_errors import AgentErrors
from loom_worker.store.database import Database
from loom_worker.store.prepare import prepare
from loom_worker.store.sessions import Sessions
from loom_worker.store.shared_memory import KeyWrite, Namespace, SharedMemory
from loom_worker.tools.error_channel import Failures

WORKSPACE = "bench"
ASKED, THREADS, SESSIONS = 1_000, 8, 50
TOOLS = ("sql_query", "http_get", "search_documents")


def main() -> None:
    """Errors, shared memory, redaction."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--errors", type=int, default=10_000, help="how many there are when they are read")
    count = parser.parse_args().errors
    with database() as store:
        errors(store, count)
    for keys in (100, 1_000, 10_000):
        with database() as store:
            shared(store, keys)
    redaction()


def errors(store: Database, count: int) -> None:
    """Store so many, then ask."""
    failures, kept, chance = Failures(AgentErrors(store)), AgentErrors(store), random.Random(7)
    callers = [caller(store, f"s{number}") for number in range(SESSIONS)]
    failures.keep(callers[0], TOOLS[0], failed(0))  # loads the tokenizer
    ids = [
        str(failures.keep(callers[number % SESSIONS], TOOLS[number % 3], failed(number))[1])
        for number in range(count - ASKED)
    ]
    timed("store an error", "5 / 15 ms", lambda at: failures.keep(callers[at % SESSIONS], TOOLS[at % 3], failed(at)))
    timed("get an error", "3 / 10 ms", lambda _: kept.get(WORKSPACE, chance.choice(ids)))
    for name, wanted in filters().items():
        timed(f"list 50 errors {name}", "10 / 50 ms", lambda _, w=wanted: kept.page(WORKSPACE, w, limit=50, after=None))
    per_s = at_once(lambda at: failures.keep(callers[at % SESSIONS], TOOLS[at % 3], failed(at)))
    figure("store errors, 8 threads", per_s, "errors/s", told="200")
    text, _ = failures.keep(callers[0], TOOLS[0], failed(0))
    figure("what an error of 3,000 characters costs the model", cl100k_tokens(text), "tokens", told="25 a summary")


def filters() -> dict[str, ErrorFilter]:
    """Ways to ask for errors."""
    now_ms = time.time_ns() // 1_000_000
    return {
        "of the workspace": ErrorFilter(),
        "of a session": ErrorFilter(session_id="s7"),
        "of a tool": ErrorFilter(tool="sql_query"),
        "of a session and a tool in an hour": ErrorFilter("s7", "sql_query", now_ms - 3_600_000, now_ms),
    }


def shared(store: Database, keys: int) -> None:
    """Fill a namespace, then write and read in it."""
    memory, chance = SharedMemory(store), random.Random(7)
    shelf, change = Namespace(WORKSPACE, "AGENT", "player1"), KeyWrite("player1", 1)
    value = {"text": "x" * 200}
    for number in range(keys - ASKED if keys > ASKED else keys):
        memory.write(shelf, f"k{number}", value, change)
    told = "10 ms" if keys >= 10_000 else "< 1 ms"
    more = {"keys": keys}
    if keys > ASKED:
        at = iter(range(keys - ASKED, keys))
        timed("write a new key", told, lambda _: memory.write(shelf, f"k{next(at)}", value, change), **more)
    names = [f"k{chance.randrange(keys)}" for _ in range(ASKED)]
    timed("write a key that is there", told, lambda at: memory.write(shelf, names[at], value, change), **more)
    timed("read a key", told, lambda at: memory.read(shelf, names[at]), **more)
    timed("list 50 keys by prefix", told, lambda at: memory.page(shelf, "k1", limit=50, after=None), **more)
    newest = memory.changes(shelf, "", since=10**9, limit=1).revision
    timed(
        "look for changes when there are none",
        told,
        lambda _: memory.changes(shelf, "", since=newest, limit=50),
        **more,
    )


def redaction() -> None:
    """CPU time for a megabyte of prose, and for one that was made to take long."""
    texts = {
        "an error of 3,000 characters": failed(0).content,
        "1 MB of log": "12:30:01 INFO the part 4711 of the answer was read in 12.5 ms\n" * 16_000,
        "1 MB of addresses": "a@b.co " * 142_857,
        "1 MB of groups of digits": "4111 " * 200_000,
    }
    for name, text in texts.items():
        began_s = time.process_time()
        redacted(text)
        figure(f"redact {name}", (time.process_time() - began_s) * 1000, "ms")


def failed(number: int) -> Outcome:
    """A failure of 3,000 characters, with a trace behind it."""
    line = f"no such column: amount_{number}, nearest: amount, amount_net\npostgresql://app:hunter2@db/x\n"
    return Outcome(
        "failed", (line + "  at step of the plan that reads orders by their day\n" * 60)[:3000], code="INVALID_INPUT"
    )


def caller(store: Database, session: str) -> Caller:
    """Of a new session."""
    lane = Sessions(store).create(WORKSPACE, NewSession(id=session), now_ms=1).lane
    return Caller(lane, session, WORKSPACE, "turn_1", "call_1")


def at_once(run: Callable[[int], object]) -> float:
    """How many a second several threads do."""

    def work(first: int) -> None:
        for at in range(first, ASKED, THREADS):
            run(at)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(THREADS)]
    began_s = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ASKED / (time.perf_counter() - began_s)


def timed(name: str, told: str, run: Callable[[int], object], **more: object) -> None:
    """Do it often; the middle and the slowest in a hundred."""
    taken_ms: list[float] = []
    for at in range(ASKED):
        began_s = time.perf_counter()
        run(at)
        taken_ms.append((time.perf_counter() - began_s) * 1000)
    shares(name, taken_ms, told=told, **more)


def shares(name: str, taken_ms: Sequence[float], **more: object) -> None:
    """Print p50 and p99."""
    for share in (50, 99):
        figure(f"{name}, p{share}", percentile(taken_ms, share), "ms", **more)


@contextmanager
def database() -> Iterator[Database]:
    """A new one in a temporary place, with the disk asked for as LOOM_SQLITE_SYNC says."""
    with tempfile.TemporaryDirectory() as home:
        settings = from_env({"LOOM_HOME": home, **{n: v for n, v in os.environ.items() if n == "LOOM_SQLITE_SYNC"}})
        prepare(settings)
        store = Database(settings.database_url, sync=settings.sqlite_sync)
        yield store
        store.close()


def figure(name: str, value: float, unit: str, **more: object) -> None:
    """Print one."""
    print(json.dumps({"figure": name, "value": round(value, 3), "unit": unit, **more}), flush=True)


if __name__ == "__main__":
    main()
