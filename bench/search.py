"""Measure search: `python -m bench.search [--messages 100000]`. One JSON line a figure.

Latency of searches in one session, with all messages in it and with all but a few in others, and in the newest sessions
of a workspace together, on made-up text whose words are as rare and as common as English ones. With LOOM_TEST_DATA also
what share of the messages that answer a question is found, over the dialogues there.
"""

import argparse
import gzip
import json
import os
import random
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import Any

from sqlalchemy import insert, select, update

from bench.stats import percentile
from bench.stores import STORES, figure, vacuum
from loom_worker.core.values.chat import ChatMessage
from loom_worker.core.values.sessions import Message, NewSession
from loom_worker.core.words import STOP_WORDS
from loom_worker.store import rows
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.schema import messages, sessions
from loom_worker.store.search import Search
from loom_worker.store.sessions import Sessions

WORKSPACE = "bench"
VOCABULARY, WORDS, ASKED = 20_000, 25, 400
"""Different words, words of a message, questions."""
PLAIN = (
    "SELECT messages.id FROM messages_fts5 JOIN messages ON messages.n = messages_fts5.rowid "
    "WHERE messages_fts5 MATCH ? ORDER BY bm25(messages_fts5, 0, 1, 1, 1) LIMIT 10"
)
Dialogue = Mapping[str, Any]
Said = Sequence[tuple[str, str, str, int]]
"""Id, role, text and moment (ms since 1970) of each message of a session."""


def main() -> None:
    """Latency at --messages, spread over sessions and in one; then recall."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--store", choices=STORES, default="sqlite")
    given = parser.parse_args()
    count, database = given.messages, STORES[given.store]
    for per_session in sorted({500, min(10_000, count), count}):
        with database() as store:
            latencies(store, count=count, per_session=per_session)
    with database() as store:
        scope_latencies(store, count=count)
    data = os.environ.get("LOOM_TEST_DATA")
    if data:
        with database() as store:
            recalls(store, json.loads(gzip.decompress((Path(data) / "dialogues" / "dialogues3.json.gz").read_bytes())))


def load(store: Database, name: str, said: Said) -> None:
    """A session with these messages."""
    lane = Sessions(store).create(WORKSPACE, NewSession(id=name), now_ms=1).lane
    made = [
        Message(f"{name}/{at}", name, f"turn-{name}", ChatMessage(role=role, text=text), 1, ms)  # type: ignore[arg-type]
        for at, role, text, ms in said
    ]
    for start in range(0, len(made), 1000):
        with store.write(lock=WHOLE) as tx:
            columns = [rows.message_columns(message, lane=lane) for message in made[start : start + 1000]]
            tx.execute(insert(messages), columns)
    with store.write(lock=WHOLE) as tx:
        tx.execute(update(sessions).where(sessions.c.lane == lane).values(next_seq=len(made) // 2 + 1))


def latencies(store: Database, *, count: int, per_session: int) -> None:
    """Load so many messages, search some sessions, delete one."""
    talk = Talk(random.Random(7))
    names = [f"s{number}" for number in range(count // per_session)]
    began_s = time.perf_counter()
    for name in names:
        said = [(f"{name}-{n}", ("user", "assistant")[n % 2], talk.sentence(WORDS), 1) for n in range(per_session)]
        load(store, name, said)
    vacuum(store)
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


def scope_latencies(store: Database, *, count: int, per_session: int = 500) -> None:
    """Load so many messages in sessions of a workspace, and search the newest MOST_SESSIONS of them together."""
    talk = Talk(random.Random(7))
    names = [f"s{number}" for number in range(count // per_session)]
    for name in names:
        load(store, name, [(f"{name}-{n}", "user", talk.sentence(WORDS), 1) for n in range(per_session)])
    vacuum(store)
    lane, search = Sessions(store).get(WORKSPACE, names[-1]).lane, Search(store)
    for when in ("", " in May 2023"):
        taken_ms = []
        for _ in range(ASKED // 4):
            question = f"What did you say about {talk.question(6)}{when}?"
            began_s = time.perf_counter()
            search.scope(lane, question, scope="workspace", limit=10)
            taken_ms.append((time.perf_counter() - began_s) * 1000)
        kind = "search of a workspace, with a date" if when else "search of a workspace"
        for share in (50, 95):
            figure(f"{kind}, p{share}", percentile(taken_ms, share), "ms", messages=count, sessions=len(names))


def recalls(store: Database, dialogues: Sequence[Dialogue]) -> None:
    """The share of the evidence among ten hits, and in their passages, asked for at the end of each dialogue."""
    for dialogue in dialogues:
        load(store, dialogue["id"], _said(dialogue))
    if store.engine.files:
        figure("recall@10, FTS5's BM25 alone", 100 * plain(store, dialogues, frozenset()), "%")
        figure("recall@10, FTS5's BM25, stop words dropped", 100 * plain(store, dialogues, STOP_WORDS), "%")
    for name, is_apart in (("", False), (", one hit a passage", True)):
        found, shown = zip(*_shares(store, dialogues, is_apart=is_apart), strict=True)
        figure(f"recall@10{name}", 100 * sum(found) / len(found), "%", nothing_found=found.count(0.0))
        figure(f"recall@10 in passages{name}", 100 * sum(shown) / len(shown), "%", questions=len(shown))


def _shares(store: Database, dialogues: Sequence[Dialogue], *, is_apart: bool) -> Iterator[tuple[float, float]]:
    search = Search(store)
    for dialogue in dialogues:
        name, now_ms = dialogue["id"], moment_ms(dialogue["messages"][-1]["time"])
        for asked in dialogue["questions"]:
            hits = search.session(WORKSPACE, name, asked["question"], limit=10, is_apart=is_apart, now_ms=now_ms)
            wanted = {f"{name}/{each}" for each in asked["evidence"]}
            shown = {each.message_id for hit in hits for each in hit.passage}
            yield len(wanted & {hit.message_id for hit in hits}) / len(wanted), len(wanted & shown) / len(wanted)


def _said(dialogue: Dialogue) -> Said:
    """Its messages: those of the first speaker are the user's, the name stands before each text."""
    first = dialogue["messages"][0]["speaker"]
    roles = {True: "user", False: "assistant"}
    return [
        (m["id"], roles[m["speaker"] == first], f"{m['speaker']}: {m['text']}", moment_ms(m["time"]))
        for m in dialogue["messages"]
    ]


def moment_ms(time: str) -> int:
    """``4:04 pm on 20 January, 2023``, taken for UTC, as ms since 1970."""
    return int(datetime.strptime(time, "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC).timestamp()) * 1000


def plain(store: Database, dialogues: Sequence[Dialogue], dropped: frozenset[str]) -> float:
    """Recall with nothing but FTS5's BM25 over the question's words, those dropped left out."""
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


if __name__ == "__main__":
    main()
