"""Measure search: `python -m bench.search [--messages 100000]`. One JSON line a figure.

Latency of searches in one session, with all messages in it and with all but a few in others, on made-up text whose
words are as rare and as common as English ones. With LOOM_TEST_DATA also the recall over the dialogues there, as it is
and with each part of the ranking left out.
"""

import argparse
import gzip
import json
import os
import random
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any
from unittest import mock

from sqlalchemy import insert, select, update

from bench.stats import percentile
from loom_worker.core.settings import from_env
from loom_worker.core.values.chat import ChatMessage
from loom_worker.core.values.sessions import Message, NewSession
from loom_worker.core.words import STOP_WORDS
from loom_worker.llm.tokens import cl100k_tokens
from loom_worker.store import rows, search_rank, search_words
from loom_worker.store.database import Database
from loom_worker.store.prepare import prepare
from loom_worker.store.schema import messages, sessions
from loom_worker.store.search import Search
from loom_worker.store.sessions import Sessions

WORKSPACE = "bench"
VOCABULARY, WORDS, ASKED = 20_000, 25, 400
"""Different words, words of a message, questions."""
Said = Sequence[tuple[str, str, str]]
"""Id, role and text of each message of a session."""


def main() -> None:
    """Latency at --messages, spread over sessions and in one; then recall."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    count = parser.parse_args().messages
    for per_session in (500, 10_000, count):
        with database() as store:
            latencies(store, count=count, per_session=per_session)
    data = os.environ.get("LOOM_TEST_DATA")
    if data:
        recalls(json.loads(gzip.decompress((Path(data) / "dialogues" / "dialogues3.json.gz").read_bytes())))


def latencies(store: Database, *, count: int, per_session: int) -> None:
    """Load so many messages, search some sessions, delete one."""
    talk = Talk(random.Random(7))
    names = [f"s{number}" for number in range(count // per_session)]
    began_s = time.perf_counter()
    for name in names:
        said = [(f"{name}-{n}", ("user", "assistant")[n % 2], talk.sentence(WORDS)) for n in range(per_session)]
        load(store, name, said)
    told = {"messages": count, "messages_in_session": per_session}
    figure("index and insert", (time.perf_counter() - began_s) / count * 1e6, "us a message", **told)
    search, taken_ms = Search(store), []
    for number in range(ASKED):
        question = f"What did you say about {talk.question(6)}?"
        began_s = time.perf_counter()
        search.session(WORKSPACE, names[number % len(names)], question, limit=10)
        taken_ms.append((time.perf_counter() - began_s) * 1000)
    for share in (50, 95, 99):
        figure(f"search, p{share}", percentile(taken_ms, share), "ms", **told)
    began_s = time.perf_counter()
    Sessions(store).delete(WORKSPACE, names[0])
    figure("delete a session", (time.perf_counter() - began_s) * 1000, "ms", **told)


class Talk:
    """Words as rare and as common as those of a language: the n-th is 1/n as frequent as the first (Zipf)."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        syllables = [first + vowel + last for first in "bdfgklmnprst" for vowel in "aeiou" for last in ("", "n", "r")]
        self._words = ["".join(chance.choices(syllables, k=chance.randint(2, 4))) for _ in range(VOCABULARY)]
        self._sums = list(accumulate(1 / (n + 2.7) for n in range(VOCABULARY)))

    def sentence(self, words: int) -> str:
        """That many words, as often as they are common."""
        return " ".join(self._chance.choices(self._words, cum_weights=self._sums, k=words))

    def question(self, words: int) -> str:
        """Words of matter: none of the hundred commonest, which in a language are those of grammar."""
        drawn = self._chance.choices(self._words[100:], cum_weights=self._sums[100:], k=words)
        return " ".join(drawn)


def recalls(dialogues: Sequence[Any]) -> None:
    """Share of the evidence among the first ten hits and in their passages, as it is and with each part left out."""
    with database() as store:
        for dialogue in dialogues:
            first = dialogue["messages"][0]["speaker"]
            lines = ((m["id"], "user" if m["speaker"] == first else "assistant", m) for m in dialogue["messages"])
            load(store, dialogue["id"], [(at, role, f"{m['speaker']}: {m['text']}") for at, role, m in lines])
        figure("recall@10, FTS5's BM25 alone", 100 * plain(store, dialogues, frozenset()), "%")
        figure("recall@10, FTS5's BM25, stop words dropped", 100 * plain(store, dialogues, STOP_WORDS), "%")
        for part, without in WITHOUT.items():
            name = f", without {part}" if part else ""
            with without():
                found = recall(store, dialogues)
                figure(f"recall@10{name}", 100 * found.in_hits, "%")
                figure(f"recall@10 in passages{name}", 100 * found.in_passages, "%")
                if not name:
                    for share in (50, 95, 100):
                        figure(f"tokens of a passage, p{share}", percentile(found.passage_tokens, share), "tokens")


@dataclass(frozen=True, slots=True)
class Recall:
    """How much of the evidence was found among the first ten hits, the mean over all questions (0-1)."""

    in_hits: float
    in_passages: float
    """In the hits or beside them."""
    passage_tokens: Sequence[int]
    """Of each passage, as cl100k counts its texts."""


def recall(store: Database, dialogues: Sequence[Any]) -> Recall:
    """Ask all questions."""
    search, in_hits, in_passages, tokens = Search(store), [], [], []
    for dialogue in dialogues:
        for asked in dialogue["questions"]:
            hits = search.session(WORKSPACE, dialogue["id"], asked["question"], limit=10)
            shown = {each.message_id for hit in hits for each in hit.passage}
            wanted = {f"{dialogue['id']}/{each}" for each in asked["evidence"]}
            in_hits.append(len(wanted & {hit.message_id for hit in hits}) / len(wanted))
            in_passages.append(len(wanted & shown) / len(wanted))
            tokens += [cl100k_tokens("\n".join(each.text for each in hit.passage)) for hit in hits]
    return Recall(sum(in_hits) / len(in_hits), sum(in_passages) / len(in_passages), tokens)


def plain(store: Database, dialogues: Sequence[Any], dropped: frozenset[str]) -> float:
    """As recall, with nothing but FTS5's BM25 over the question's words, those dropped left out."""
    shares = []
    with store.read() as tx:
        for dialogue in dialogues:
            lane = tx.execute(select(sessions.c.lane).where(sessions.c.id == dialogue["id"])).scalar_one()
            for asked in dialogue["questions"]:
                words = [word for word in re.findall(r"[^\W_]+", asked["question"].lower()) if word not in dropped]
                match = f'lane : "{lane}" AND said : ({" OR ".join(map(json.dumps, words))})'
                found = tx.exec_driver_sql(PLAIN, (match,)).scalars().all()
                ids = {at.removeprefix(f"{dialogue['id']}/") for at in found}
                shares.append(len(ids & set(asked["evidence"])) / len(asked["evidence"]))
    return sum(shares) / len(shares)


PLAIN = (
    "SELECT messages.id FROM messages_fts5 JOIN messages ON messages.n = messages_fts5.rowid "
    "WHERE messages_fts5 MATCH ? ORDER BY bm25(messages_fts5, 0, 1, 1, 1) LIMIT 10"
)
WITHOUT: dict[str, Callable[[], Any]] = {
    "": nullcontext,
    "neighbours": lambda: mock.patch.object(search_rank, "PARTS", ()),
    "what follows a question": lambda: mock.patch.object(search_rank, "ANSWERS", ()),
    "irregular forms": lambda: mock.patch.object(search_words, "forms_of", lambda word: frozenset({word})),
    "stop words": lambda: mock.patch.object(search_words, "STOP_WORDS", frozenset()),
    "coverage": lambda: mock.patch.object(search_rank, "WHOLE", 0.0),
    "nearness": lambda: mock.patch.object(search_rank, "nearness", return_value=0.0),
    "a question's being worth less": lambda: mock.patch.object(search_rank, "QUESTION", 1.0),
    "length": lambda: mock.patch.object(search_rank, "B", 0.0),
}


@contextmanager
def database() -> Iterator[Database]:
    """A new one in a temporary place."""
    with tempfile.TemporaryDirectory() as home:
        settings = from_env({"LOOM_HOME": home, "LOOM_SQLITE_SYNC": "normal"})
        prepare(settings)
        store = Database(settings.database_url, sync="normal")
        yield store
        store.close()


def load(store: Database, name: str, said: Said) -> None:
    """A session with these messages."""
    lane = Sessions(store).create(WORKSPACE, NewSession(id=name), now_ms=1).lane
    made = [
        Message(f"{name}/{at}", name, f"turn-{name}", ChatMessage(role=role, text=text), 1, 1)  # type: ignore[arg-type]
        for at, role, text in said
    ]
    for start in range(0, len(made), 1000):
        with store.write() as tx:
            columns = [rows.message_columns(message, lane=lane) for message in made[start : start + 1000]]
            tx.execute(insert(messages), columns)
    with store.write() as tx:
        tx.execute(update(sessions).where(sessions.c.lane == lane).values(next_seq=len(made) // 2 + 1))


def figure(name: str, value: float, unit: str, **more: object) -> None:
    """Print one."""
    print(json.dumps({"figure": name, "value": round(value, 2), "unit": unit, **more}), flush=True)


if __name__ == "__main__":
    main()
