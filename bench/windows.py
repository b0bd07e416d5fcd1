"""Measure what a window holds of a long conversation: `python -m bench.windows [--windows 8000,32000,200000]`.

With LOOM_TEST_DATA. The dialogues there are replayed turn by turn as sessions of the shop's agent: every turn's request
is packed by Loom's own memory, summaries are made without a model. Then each question about a dialogue is put as its
next message, and each message that answers it is looked for: word by word in the prompt, in its summary, among the
first ten hits of the search, nowhere. Beside it what a turn of the replay costs, by a provider's prefix cache and list
prices. A line of a table for at most ten messages in L1, and for each value of an agent's `memory.spend`. With --joined
the dialogues are one conversation after the other in one session, longer than most, and asked about at its end.
"""

import argparse
import gzip
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from threading import Semaphore
from types import SimpleNamespace
from typing import Any, get_args

from sqlalchemy import insert

from bench.prefix import PrefixCache, request_blocks
from loom_worker.agents.load import Agents, load
from loom_worker.agents.memory import MARKS
from loom_worker.core import redis_client
from loom_worker.core.errors import BudgetExceeded
from loom_worker.core.settings import from_env
from loom_worker.core.stopping import Stopping
from loom_worker.core.values.chat import ChatMessage, Request, Usage
from loom_worker.core.values.memory import MemoryPolicy, Spend
from loom_worker.core.values.sessions import Message, NewSession, Session
from loom_worker.llm import prices, tokens
from loom_worker.llm.anthropic_request import request_body
from loom_worker.memory.compress import Compressor
from loom_worker.memory.fit import Context
from loom_worker.memory.layers import message_tokens
from loom_worker.memory.summarize import CompressionRules
from loom_worker.runtime.components import components
from loom_worker.store import rows
from loom_worker.store.database import Database
from loom_worker.store.facts import Facts
from loom_worker.store.memory import Memories
from loom_worker.store.prepare import prepare
from loom_worker.store.schema import messages
from loom_worker.store.search import Search
from loom_worker.store.sessions import Sessions
from loom_worker.turn.agent_runtime import AgentRuntime
from loom_worker.turn.context import HISTORY_MESSAGES, build, is_pressed, layers_of, new_rom, room_of_l1

MODEL, WORKSPACE = "claude-sonnet-5-5", "bench"
WINDOWS = "8000,32000,200000"
TEN = MemoryPolicy(max_l1_messages=10, batches=(4, 6, 8), **MARKS)
SPENT: tuple[Spend, ...] = get_args(Spend)
POLICIES = {"ten messages": TEN} | {spend: MemoryPolicy(spend=spend) for spend in SPENT}
COLUMNS = (
    "in L1",
    "in a summary",
    "found by search alone",
    "in neither",
    "turns refused",
    "prompt tokens a turn",
    "read from the cache",
    "USD a turn",
    "compressions",
)


@dataclass
class Tally:
    """What was counted over all dialogues."""

    places: dict[str, float] = field(default_factory=lambda: dict.fromkeys(COLUMNS[:4], 0.0))
    """Shares of the evidence, summed over the questions."""
    questions: int = 0
    turns: int = 0
    refused: int = 0
    usage: Usage = field(default_factory=Usage)
    cost_usd: float = 0.0
    compressions: int = 0

    def line(self) -> list[str]:
        """Its figures, in the order of COLUMNS."""
        usage, asked = self.usage, max(self.turns - self.refused, 1)
        prompt = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
        shares = [f"{100 * place / self.questions:.1f} %" for place in self.places.values()]
        return [
            *shares,
            f"{self.refused} of {self.turns}",
            f"{prompt / asked:,.0f}",
            f"{100 * usage.cache_read_tokens / max(prompt, 1):.1f} %",
            f"{self.cost_usd / asked:.5f}",
            str(self.compressions),
        ]


@dataclass(frozen=True)
class Replay:
    """A dialogue that becomes a session."""

    runtime: AgentRuntime
    compressor: Compressor
    search: Search
    session: Session
    database: Database
    rom: str

    def context(self, question: str) -> Context:
        """What would be sent with this question."""
        remembered = self.compressor.memories.load(self.session.lane, limit=HISTORY_MESSAGES)
        current = (ChatMessage("user", question, "Today is 2026-11-21."),)
        layers = layers_of(self.runtime, remembered, rom=self.rom, kernel={}, recalled="", current=current)
        return build(self.runtime, layers, ratio=self.runtime.typical)

    def take(self, said: Sequence[Message]) -> None:
        """Add a turn, and compress what is to be compressed."""
        before = self.compressor.memories.load(self.session.lane, limit=HISTORY_MESSAGES)
        with self.database.write() as tx:
            tx.execute(insert(messages), [rows.message_columns(each, lane=self.session.lane) for each in said])
        room = room_of_l1(self.runtime, rom=self.rom, kernel={}, ratio=self.runtime.typical)
        while is_pressed(self.runtime, before, said, room=room) and self.compressor.compress(self.session.lane):
            pass


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--windows", default=WINDOWS)
    parser.add_argument("--joined", action="store_true")
    given = parser.parse_args()
    windows = [int(window) for window in given.windows.split(",")]
    data = os.environ.get("LOOM_TEST_DATA") or sys.exit("LOOM_TEST_DATA names no folder with dialogues.")
    dialogues = json.loads(gzip.decompress((Path(data) / "dialogues" / "dialogues3.json.gz").read_bytes()))
    sessions = [dialogues] if given.joined else [[dialogue] for dialogue in dialogues]
    print(f"| window | L1 | {' | '.join(COLUMNS)} |\n|{' --- |' * (len(COLUMNS) + 2)}", flush=True)
    for window in windows:
        for name, policy in POLICIES.items():
            tally = Tally()
            for each in sessions:
                with replaying("-".join(dialogue["id"] for dialogue in each), window, policy) as replay:
                    measure(replay, each, tally)
            print(f"| {window:,} | {name} | {' | '.join(tally.line())} |", flush=True)


@contextmanager
def replaying(name: str, window: int, policy: MemoryPolicy) -> Iterator[Replay]:
    """A new session of the shop's agent, in a database of its own."""
    with tempfile.TemporaryDirectory(prefix="loom-bench-") as home:
        environ = {"LOOM_HOME": home, "LOOM_PROVIDER": "anthropic", "LOOM_MODEL": MODEL, "ANTHROPIC_API_KEY": "none"}
        settings = from_env({**environ, "LOOM_MAX_CONTEXT_TOKENS": str(window), "LOOM_SQLITE_SYNC": "normal"})
        prepare(settings)
        with closing(Database(settings.database_url, sync="normal")) as database:
            agent = replace(load(None).agents["default"], memory=policy)
            client = redis_client.client(settings.redis_url, connections=1)
            agents = Agents({agent.name: agent}, ())
            fitted = components(settings, agents, database, client, process="bench", stopping=Stopping(1.0))
            registry, memories = fitted.registry, Memories(database)
            runtime = registry.runtime("default")
            rom = new_rom(runtime, fitted.knowledge).text

            def compression(session: Session) -> CompressionRules:
                return replace(registry.compression(replace(session, rom=rom)), model=None)

            around: Any = SimpleNamespace(compression=compression, alive=frozenset)
            compressor = Compressor(
                "bench", memories, Facts(database), around, around, around, Stopping(1.0), Semaphore()
            )
            session = Sessions(database).create(WORKSPACE, NewSession(id=name), now_ms=1)
            yield Replay(runtime, compressor, Search(database), session, database, rom)
            fitted.close()


def measure(replay: Replay, dialogues: Sequence[Any], tally: Tally) -> None:
    """Replay dialogues turn by turn, one after the other, then put the questions."""
    cache = PrefixCache()
    made = [turn for dialogue in dialogues for turn in turns(dialogue, replay)]
    for turn in made:
        tally.turns += 1
        try:
            context = replay.context(turn[0].chat.text)
        except BudgetExceeded:
            tally.refused += 1
        else:
            answer = sum(message.token_count for message in turn[1:])
            _bill(replay.runtime, context, answer, cache, tally)
        replay.take(turn)
    tally.compressions += replay.compressor.memories.load(replay.session.lane, limit=0).state.version
    texts = {message.id: message.chat.text for turn in made for message in turn}
    order = [message.id for turn in made for message in turn]
    for name, asked in ((dialogue["id"], asked) for dialogue in dialogues for asked in dialogue["questions"]):
        evidence = [f"{name}/{at}" for at in asked["evidence"] if f"{name}/{at}" in texts]
        if evidence:
            tally.questions += 1
            places = _places(replay, asked["question"], order, texts)
            for at in evidence:
                tally.places[places.get(at, COLUMNS[3])] += 1 / len(evidence)


def turns(dialogue: Any, replay: Replay) -> Iterator[tuple[Message, ...]]:
    """The dialogue as a session's turns: the first speaker is the user, and what follows until it speaks again."""
    name, user, count = dialogue["id"], dialogue["messages"][0]["speaker"], replay.runtime.count
    turn: list[Message] = []
    for number, said in enumerate(dialogue["messages"]):
        role = "user" if said["speaker"] == user else "assistant"
        if role == "user" and turn and turn[-1].chat.role == "assistant":
            yield tuple(turn)
            turn = []
        chat = ChatMessage(role, f"({said['time']}) {said['speaker']}: {said['text']}")  # type: ignore[arg-type]
        turn_id = turn[0].turn_id if turn else f"turn-{name}-{number}"
        tokens_of = message_tokens(chat, count)
        turn.append(Message(f"{name}/{said['id']}", replay.session.id, turn_id, chat, tokens_of, number))
    yield tuple(turn)


def _bill(runtime: AgentRuntime, context: Context, answer_tokens: int, cache: PrefixCache, tally: Tally) -> None:
    count = _counter(MODEL, runtime.typical)
    request = Request(context.system, context.messages, context.memory, context.tools, max_tokens=runtime.max_tokens)
    usage = cache.ask(request_blocks(request_body(request, MODEL), count))
    usage = replace(usage, output_tokens=round(answer_tokens * runtime.typical))
    tally.usage += usage
    tally.cost_usd += float(prices.cost_usd(MODEL, usage) or 0)


@lru_cache(maxsize=1)
def _counter(model: str, typical: float) -> Callable[[str], float]:
    """The usual tokens of a text, remembered: all but the last of a request was there before."""
    return lru_cache(maxsize=50_000)(lambda text: tokens.count(text, model) * typical)


def _places(replay: Replay, question: str, order: Sequence[str], texts: dict[str, str]) -> dict[str, str]:
    """Where each message stands when this is asked, the best place of each; those in neither are missing."""
    hits = replay.search.session(WORKSPACE, replay.session.id, question, limit=10)
    places = dict.fromkeys((hit.message_id for hit in hits), COLUMNS[2])
    try:
        context = replay.context(question)
    except BudgetExceeded:
        return places
    summary = _plain(context.memory)
    places |= dict.fromkeys((at for at, text in texts.items() if _is_in(text, summary)), COLUMNS[1])
    return places | dict.fromkeys(order[len(order) - context.l1_messages :], COLUMNS[0])


def _is_in(text: str, summary: str) -> bool:
    """Whether half of a message or more stands in the summary, sentence by sentence."""
    sentences = [_plain(each) for each in re.split(r"(?<=[.!?])\s+", text.partition(": ")[2]) if each.strip()]
    kept = sum(len(each) for each in sentences if each in summary)
    return bool(sentences) and 2 * kept >= sum(map(len, sentences))


def _plain(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    main()
