"""Measure search: `python -m bench.search [--messages 100000]`. One JSON line a figure.

Latency of searches in one session, with all messages in it and with all but a few in others, and in the newest sessions
of a workspace together, on made-up text whose words are as rare and as common as English ones. With LOOM_TEST_DATA also
the recall over the dialogues there (``bench.search_recall``).
"""

import argparse
import gzip
import json
import os
import random
import time
from itertools import accumulate
from pathlib import Path

from bench.search_data import WORKSPACE, database, figure, load
from bench.search_recall import recalls
from bench.stats import percentile
from loom_worker.store.database import Database
from loom_worker.store.search import Search
from loom_worker.store.sessions import Sessions

VOCABULARY, WORDS, ASKED = 20_000, 25, 400
"""Different words, words of a message, questions."""


def main() -> None:
    """Latency at --messages, spread over sessions and in one; then recall."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    count = parser.parse_args().messages
    for per_session in sorted({500, min(10_000, count), count}):
        with database() as store:
            latencies(store, count=count, per_session=per_session)
    with database() as store:
        scope_latencies(store, count=count)
    data = os.environ.get("LOOM_TEST_DATA")
    if data:
        with database() as store:
            recalls(store, json.loads(gzip.decompress((Path(data) / "dialogues" / "dialogues3.json.gz").read_bytes())))


def latencies(store: Database, *, count: int, per_session: int) -> None:
    """Load so many messages, search some sessions, delete one."""
    talk = Talk(random.Random(7))
    names = [f"s{number}" for number in range(count // per_session)]
    began_s = time.perf_counter()
    for name in names:
        said = [(f"{name}-{n}", ("user", "assistant")[n % 2], talk.sentence(WORDS), 1) for n in range(per_session)]
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


def scope_latencies(store: Database, *, count: int, per_session: int = 500) -> None:
    """Load so many messages in sessions of a workspace, and search the newest MOST_SESSIONS of them together."""
    talk = Talk(random.Random(7))
    names = [f"s{number}" for number in range(count // per_session)]
    for name in names:
        load(store, name, [(f"{name}-{n}", "user", talk.sentence(WORDS), 1) for n in range(per_session)])
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
