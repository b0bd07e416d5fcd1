"""What memory costs a turn: reading it, fitting it, writing it, and what goes to swap and comes back.

On the database file alone, behind a session of 10,000 messages; durable commits, as Loom's are.
"""

import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from bench.kinds import prose
from bench.report import Report
from bench.scale import Scale
from loom_worker.agents.load import load
from loom_worker.core import redis_client
from loom_worker.core.settings import from_env
from loom_worker.core.stopping import Stopping
from loom_worker.core.values.chat import ChatMessage, Usage
from loom_worker.core.values.ids import new_id, now_ms
from loom_worker.core.values.memory import MemoryState
from loom_worker.core.values.sessions import Message, NewSession
from loom_worker.core.values.turns import Claim, Ending, NewTurn
from loom_worker.runtime.components import components
from loom_worker.store.claims import Claims
from loom_worker.store.database import Database
from loom_worker.store.journal import Final, Journal
from loom_worker.store.memory import Memories, NewMemory, NewSnapshot
from loom_worker.store.prepare import prepare
from loom_worker.store.search import Search
from loom_worker.store.sessions import Sessions
from loom_worker.store.submit import submit
from loom_worker.turn.agent_runtime import AgentRuntime
from loom_worker.turn.context import HISTORY_MESSAGES, build, kernel_of, layers_of, new_rom

LENGTH = 10_000
SESSION = "long"
L2_CHARS = 12_000


@dataclass(frozen=True)
class Past:
    """A session that has been there for long."""

    database: Database
    lane: str
    runtime: AgentRuntime
    rom: str
    claims: list[Claim]
    """Turns that are ready to be ended."""

    @property
    def memories(self) -> Memories:
        """The store of what is remembered."""
        return Memories(self.database)


def measure(report: Report, scale: Scale) -> None:
    """Each operation by itself, one after the other."""
    with tempfile.TemporaryDirectory(prefix="loom-bench-") as home:
        settings = from_env(
            {"LOOM_HOME": home, "LOOM_PROVIDER": "scripted", "LOOM_BACKEND_URL": f"sqlite:///{home}/no"}
        )
        prepare(settings)
        with closing(Database(settings.database_url, sync="full")) as database:
            client = redis_client.client(settings.redis_url, connections=4)
            fitted = components(settings, load(None), database, client, process="bench", stopping=Stopping(1.0))
            runtime = fitted.registry.runtime("default")
            past = Past(database, _grown(database), runtime, new_rom(runtime, fitted.knowledge).text, [])
            for name, run in _operations(past).items():
                took_ms = []
                for _ in range(scale.reads):
                    past.claims.append(_claimed(database))
                    took_ms.append(_took_ms(run))
                    _finish_all(past)
                report.shares(f"{name}, {LENGTH} messages behind it", took_ms, "ms", shares=(50, 99))
            fitted.registry.close()


def _operations(past: Past) -> dict[str, Callable[[], object]]:
    return {
        "session load": lambda: _load(past),
        "context build": _context(past),
        "persist": lambda: _finish(past.database, past.claims.pop(), 200),
        "eviction to swap": lambda: _evict(past),
        "swap retrieval, 20 messages": lambda: past.memories.page_from(past.lane, offset=LENGTH // 2, limit=20),
        "swap search": lambda: Search(past.database).lane(past.lane, prose(7, 60), limit=10),
    }


def _load(past: Past) -> None:
    Sessions(past.database).get("default", SESSION)
    past.memories.load(past.lane, limit=HISTORY_MESSAGES)


def _context(past: Past) -> Callable[[], object]:
    session = Sessions(past.database).get("default", SESSION)
    remembered = past.memories.load(past.lane, limit=HISTORY_MESSAGES)

    def run() -> None:
        current = (ChatMessage("user", prose(time.perf_counter_ns(), 200)),)
        layers = layers_of(
            past.runtime, remembered, rom=past.rom, kernel=kernel_of(session), recalled="", current=current
        )
        build(past.runtime, layers, ratio=1.0)

    return run


def _finish_all(past: Past) -> None:
    while past.claims:
        _finish(past.database, past.claims.pop(), 200)


def _evict(past: Past) -> None:
    """A full L2 becomes a snapshot, and the session goes on with a digest."""
    state = past.memories.load(past.lane, limit=1).state
    full = NewSnapshot(new_id("snap_"), state.l2_text, L2_CHARS // 4, state.l2_from_n, state.first_n - 1)
    past.memories.apply(past.lane, state, NewMemory(state, snapshot=full), now_ms=now_ms())


def _grown(database: Database) -> str:
    """A session of LENGTH messages whose last ten are in L1; its lane."""
    lane = ""
    for n in range(LENGTH // 2):
        claim = _claimed(database)
        lane = claim.turn.lane
        _finish(database, claim, n)
    memories = Memories(database)
    held = memories.claim(lane, worker="bench", alive=frozenset(), now_ms=now_ms())
    assert held is not None
    begin = memories.load(lane, limit=10).history[0].n
    after = replace(MemoryState(), version=1, first_n=begin, l2_text=prose(3, L2_CHARS), l2_from_n=1)
    assert memories.apply(lane, held.state, NewMemory(after), now_ms=now_ms())
    memories.release(lane, "bench", is_done=True, seen_due_ms=held.due_ms)
    return lane


def _claimed(database: Database) -> Claim:
    owner = ("default", NewSession(id=SESSION))
    limits = from_env({"LOOM_HOME": str(Path.home())}).limits
    turn, _ = submit(database, limits, owner, NewTurn("hello"), now_ms=now_ms())
    claim = Claims(database).claim(turn.lane, worker="bench", now_ms=now_ms())
    assert isinstance(claim, Claim)
    return claim


def _finish(database: Database, claim: Claim, n: int) -> None:
    said = tuple(
        Message(new_id("msg_"), SESSION, claim.turn.id, ChatMessage(role, prose(n, 150)), 40, now_ms())
        for role in ("user", "assistant")
    )
    progress = {"usage": Usage(10, 10, llm_calls=1).as_json(), "run_ms": 1, "patterns": [], "completed_ms": now_ms()}
    ending = Ending("completed", output_text="done")
    Journal(database).finish(claim, Final(ending, {**progress, "first_token_ms": 1}, said=said))


def _took_ms(run: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    run()
    return (time.perf_counter() - began_s) * 1000
