"""Questions over long dialogues that are no part of the package: how many of the messages that answer are found."""

import gzip
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from bench.search import moment_ms
from loom_worker.core.values.chat import ChatMessage
from loom_worker.core.values.pages import Hit
from loom_worker.store.database import Database
from loom_worker.store.journal import Journal
from loom_worker.store.search import Search
from tests.unit.store.made import WORKSPACE, final, message, running

pytestmark = [pytest.mark.heavy, pytest.mark.takes(40)]

DATA = os.environ.get("LOOM_TEST_DATA")
LEAST, LEAST_IN_PASSAGES, LEAST_APART = 0.77, 0.80, 0.81
"""Share of the evidence among the first ten hits, in their passages, and in the passages of ten hits apart.

0.576 of it is found with BM25 over all words, 0.625 without those of grammar.
"""


def load_answered(database: Database, dialogue: Any) -> None:
    """The dialogue as turns, one for each of its messages, with an answer that says it once more."""
    for line in dialogue["messages"]:
        claim = running(database, dialogue["id"])
        text = f"{line['speaker']}: {line['text']}"
        said = tuple(
            message(0, claim, id=f"{dialogue['id']}/{id_}", chat=chat, created_ms=moment_ms(line["time"]))
            for id_, chat in (
                (line["id"], ChatMessage("user", text)),
                (f"answer-{line['id']}", ChatMessage("assistant", f"You said: {text}")),
            )
        )
        Journal(database).finish(claim, final(said=said))


def load(database: Database, dialogue: Any) -> None:
    """The dialogue as turns: what the first speaker says is the user's, the rest the assistant's."""
    lines = dialogue["messages"]
    for start in range(0, len(lines), 2):
        claim = running(database, dialogue["id"])
        said = tuple(
            message(
                0,
                claim,
                id=f"{dialogue['id']}/{line['id']}",
                chat=ChatMessage("user" if n == 0 else "assistant", f"{line['speaker']}: {line['text']}"),
                created_ms=moment_ms(line["time"]),
            )
            for n, line in enumerate(lines[start : start + 2])
        )
        Journal(database).finish(claim, final(said=said))


@pytest.mark.skipif(DATA is None, reason="LOOM_TEST_DATA, which names the dialogues, is not set")
@pytest.mark.parametrize("load", [load, load_answered])
def test_most_of_what_answers_a_question_is_among_the_first_ten_hits_and_more_in_their_passages(
    database: Database, load: Callable[[Database, Any], None]
) -> None:
    dialogues = json.loads(gzip.decompress((Path(str(DATA)) / "dialogues" / "dialogues3.json.gz").read_bytes()))
    shares, in_passages, apart = [], [], []
    for dialogue in dialogues:
        load(database, dialogue)
        search, now_ms = Search(database), moment_ms(dialogue["messages"][-1]["time"])
        for asked in dialogue["questions"]:
            wanted = {f"{dialogue['id']}/{each}" for each in asked["evidence"]}
            hits, places = (
                search.session(WORKSPACE, dialogue["id"], asked["question"], limit=10, is_apart=is_apart, now_ms=now_ms)
                for is_apart in (False, True)
            )
            shares.append(len(wanted & {hit.message_id for hit in hits}) / len(wanted))
            in_passages.append(len(wanted & shown(hits)) / len(wanted))
            apart.append(len(wanted & shown(places)) / len(wanted))
    assert len(shares) == 412
    assert sum(shares) / len(shares) >= LEAST
    assert sum(in_passages) / len(in_passages) >= LEAST_IN_PASSAGES
    assert sum(apart) / len(apart) >= LEAST_APART


def shown(hits: Sequence[Hit]) -> set[str]:
    return {each.message_id for hit in hits for each in hit.passage}
