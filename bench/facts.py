"""Measure what becomes of facts: `python -m bench.facts`.

Made-up people (`bench/questions/facts.yaml`) say things in sessions, and a scripted model answers what a model might.
So what is measured is Loom's part: reading the answers, refusing what no message says, closing what is replaced,
finding it again. Everything runs through the real compressor over a real database. Reported are precision and recall of
the facts that are told to hold, and of those that held once; of what `memory_recall` tells as true on a topic, the
superseded share; and how much of what answers a topic it tells.
"""

import json
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml
from sqlalchemy import insert

from loom_worker.core.settings import from_env
from loom_worker.core.stopping import Stopping
from loom_worker.core.values.chat import ChatMessage, Reply, ReplyEvent, Request, TextDelta, ToolOutcome, Usage
from loom_worker.core.values.facts import Fact, digest_of, topic_words
from loom_worker.core.values.memory import MemoryPolicy
from loom_worker.core.values.sessions import Message, NewSession, Session
from loom_worker.core.values.tenants import WorkspaceUser
from loom_worker.core.values.tiers import MemoryTiers
from loom_worker.llm.model import Model
from loom_worker.llm.tokens import cl100k_tokens
from loom_worker.memory.compress import Compressor
from loom_worker.memory.pressure import l1_room
from loom_worker.memory.summarize import CompressionRules
from loom_worker.memory.tier_tools import MOST_FACTS, ranked
from loom_worker.store import rows
from loom_worker.store.budgets import Budgets
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.facts import Facts
from loom_worker.store.memory import Memories
from loom_worker.store.prepare import prepare
from loom_worker.store.schema import messages
from loom_worker.store.sessions import Sessions
from loom_worker.store.tables import memory

PEOPLE = Path(__file__).with_name("questions") / "facts.yaml"
MOST_SUPERSEDED = 0.05
"""Share of what is told as true that may be superseded."""
WORKSPACE = "bench"
BUDGET_TOKENS = 50_000
_KNOWN = re.compile(r"^f(\d+): (.*) \(since ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured; each from 0 to 1."""

    held_precision: float
    held_recall: float
    once_precision: float
    once_recall: float
    superseded: float
    """Of what is told as true on the topics."""
    answered: float
    """Of what answers the topics."""


class Scripted:
    """A model that gives a session's facts, naming known ones as it was shown them."""

    name = "scripted"

    def __init__(self, said: Any) -> None:
        self._said = said

    def reply(self, request: Request) -> Iterator[ReplyEvent]:
        """See Model.reply."""
        known = {text: f"f{number}" for number, text in _KNOWN.findall(request.messages[0].text)}

        def named(text: Any) -> Any:
            wanted = str(text).removeprefix("@")
            return next((number for line, number in known.items() if line.endswith(f" {wanted}")), text)

        facts = [_with_names(fact, "replaces", named) for fact in self._said["facts"]]
        ended = [{**end, "fact": named(end["fact"])} for end in self._said.get("ended", ())]
        text = json.dumps({"summary": "They talked.", "facts": facts, "ended": ended}, default=str)
        yield TextDelta(text)
        yield Reply(text, "end_turn", Usage(llm_calls=1), self.name)


def _with_names(fact: Any, key: str, named: Callable[[Any], Any]) -> Any:
    return {**fact, key: [named(each) for each in fact[key]]} if key in fact else fact


def main() -> None:
    """Print the table; exit with 1 if too much of what is told as true is superseded."""
    figures = measured(yaml.safe_load(PEOPLE.read_text(encoding="utf-8")))
    print("| what | precision | recall |\n| --- | --- | --- |")
    print(f"| facts that hold | {figures.held_precision:.1%} | {figures.held_recall:.1%} |")
    print(f"| facts that held once | {figures.once_precision:.1%} | {figures.once_recall:.1%} |\n")
    print(f"superseded, of what memory_recall tells as true: {figures.superseded:.1%} (at most {MOST_SUPERSEDED:.0%})")
    print(f"told, of what answers the topics: {figures.answered:.1%}")
    if figures.superseded > MOST_SUPERSEDED:
        sys.exit(1)


def measured(people: Sequence[Any]) -> Figures:
    """All figures over some people, each with a database of their own."""
    held, once = _Counts(), _Counts()
    told = superseded = wanted = answered = 0
    for person in people:
        with tempfile.TemporaryDirectory() as home, closing(_database(home)) as database:
            lane = [_told(database, person["user"], each) for each in person["sessions"]][-1]
            store = Facts(database)
            facts = store.find(lane, "user", (), with_history=True)
            held.add([fact for fact in facts if fact.until_ms is None], person["held"])
            once.add([fact for fact in facts if fact.until_ms is not None], person["once"])
            past = {_digest(line) for line in person["once"]}
            for topic, objects in person["topics"].items():
                found = ranked(topic, store.find(lane, "user", topic_words(topic)), most=MOST_FACTS)
                told += len(found)
                superseded += sum(fact.digest in past for fact in found)
                wanted += len(objects)
                answered += len(set(objects) & {fact.object for fact in found})
    return Figures(*held.figures(), *once.figures(), superseded / max(told, 1), answered / max(wanted, 1))


@dataclass(slots=True)
class _Counts:
    found: int = 0
    wanted: int = 0
    right: int = 0

    def add(self, facts: Sequence[Fact], lines: Sequence[str]) -> None:
        digests = {_digest(line) for line in lines}
        self.found += len(facts)
        self.wanted += len(digests)
        self.right += len({fact.digest for fact in facts} & digests)

    def figures(self) -> tuple[float, float]:
        return self.right / max(self.found, 1), self.right / max(self.wanted, 1)


_RELATIONS = (
    *("is called", "lives in", "has cat", "works at", "likes", "dislikes", "learns", "email", "has account at"),
    *("rides", "has daughter", "age", "plays", "is allergic to", "led by", "deadline", "has member", "server"),
    *("stands in", "prefers"),
)


def _digest(line: str) -> str:
    """Of a fact on one line; without a subject it is about the user."""
    relation = next(each for each in _RELATIONS if f" {each} " in f" {line}")
    subject, _, object_ = f" {line}".partition(f" {relation} ")
    return digest_of(subject.strip() or "user", relation, object_)


def _database(home: str) -> Database:
    settings = from_env({"LOOM_HOME": home})
    prepare(settings)
    return Database(settings.database_url, sync="normal")


def _told(database: Database, user: str, said: Any) -> str:
    """A session in which this was said and which is compressed; its lane."""
    session = Sessions(database).create(WorkspaceUser(WORKSPACE, user), NewSession(), now_ms=1)
    day = datetime.combine(said["day"], datetime.min.time(), UTC)
    made = [_message(session, at, line, int(day.timestamp() * 1000)) for at, line in enumerate(said["messages"])]
    with database.write(lock=WHOLE) as tx:
        tx.execute(insert(messages), [rows.message_columns(each, lane=session.lane) for each in made])
        last_n = tx.exec_driver_sql("SELECT max(n) FROM messages").scalar_one()
        tx.execute(insert(memory), {"lane": session.lane, "first_n": last_n + 1, "due_ms": 1})
    compress(database, session.lane, Scripted(said), batch_size=2)
    return session.lane


def compress(database: Database, lane: str, model: Model, *, batch_size: int) -> None:
    """Make summaries by date and facts of all that has left a session's L1, as a worker would."""
    policy = MemoryPolicy()
    rules = CompressionRules(
        policy,
        model,
        cl100k_tokens,
        l1=l1_room(BUDGET_TOKENS, policy=policy, most_tokens=BUDGET_TOKENS),
        l2_tokens=5_000,
        budget_tokens=BUDGET_TOKENS,
        tiers=MemoryTiers(batch_size=batch_size),
    )
    around: Any = SimpleNamespace(compression=lambda _: rules, alive=frozenset)
    parts = (Memories(database), Facts(database), Budgets(database), around, around)
    compressor = Compressor("bench", *parts, Stopping(1.0), threading.Semaphore())
    while compressor.compress(lane):
        pass


def _message(session: Session, at: int, line: str, at_ms: int) -> Message:
    """All of one turn, so that they are one batch."""
    role, _, text = line.partition(": ")
    if role == "tool":
        chat = ChatMessage("tool", outcomes=(ToolOutcome("toolu_1", "look", text),))
    else:
        chat = ChatMessage("user" if role == "user" else "assistant", text)
    return Message(f"{session.id}-{at}", session.id, f"turn-{session.id}", chat, 20, at_ms + at, n=at)


if __name__ == "__main__":
    main()
