"""Questions over long dialogues that are no part of the package: how many of the messages that answer are found."""

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loom_worker.core.values.chat import ChatMessage
from loom_worker.store.database import Database
from loom_worker.store.journal import Journal
from loom_worker.store.search import Search
from tests.unit.store.made import WORKSPACE, final, message, running

pytestmark = [pytest.mark.heavy, pytest.mark.takes(12)]

DATA = os.environ.get("LOOM_TEST_DATA")
LEAST, LEAST_IN_PASSAGES = 0.74, 0.79
"""Share of the evidence among the first ten hits, and in their passages; 0.576 of it is found with BM25 over all words,
0.625 without those of grammar."""


def load_answered(database: Database, dialogue: Any) -> None:
    """The dialogue as turns, one for each of its messages, with an answer that says it once more."""
    for line in dialogue["messages"]:
        claim = running(database, dialogue["id"])
        text = f"{line['speaker']}: {line['text']}"
        said = tuple(
            message(0, claim, id=f"{dialogue['id']}/{id_}", chat=chat)
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
    shares, in_passages = [], []
    for dialogue in dialogues:
        load(database, dialogue)
        for asked in dialogue["questions"]:
            hits = Search(database).session(WORKSPACE, dialogue["id"], asked["question"], limit=10)
            found = {hit.message_id.removeprefix(f"{dialogue['id']}/") for hit in hits}
            shown = {each.message_id.removeprefix(f"{dialogue['id']}/") for hit in hits for each in hit.passage}
            shares.append(len(found & set(asked["evidence"])) / len(asked["evidence"]))
            in_passages.append(len(shown & set(asked["evidence"])) / len(asked["evidence"]))
    assert len(shares) == 412
    assert sum(shares) / len(shares) >= LEAST
    assert sum(in_passages) / len(in_passages) >= LEAST_IN_PASSAGES
