"""Facts of a long conversation, as far as they can be had without a model that reads.

In a model's place stands a rule: of each message its longest sentence is a fact about its speaker, up to the forty that
Loom takes of a batch. So it measures whether what was noted is kept and found again, not what is worth noting.
"""

import json
import re
from collections.abc import Iterator, Sequence

from sqlalchemy import insert

from bench.facts import compress
from bench.search_data import WORKSPACE, Said
from loom_worker.core.values.chat import ChatMessage, Reply, ReplyEvent, Request, TextDelta, Usage
from loom_worker.core.values.facts import OBJECT_CHARS, topic_words
from loom_worker.core.values.sessions import Message, NewSession
from loom_worker.core.values.tenants import WorkspaceUser
from loom_worker.core.values.tiers import MemoryTiers
from loom_worker.memory.extract import MOST_FACTS as MOST_NOTED
from loom_worker.memory.tier_tools import MOST_FACTS, ranked
from loom_worker.store import rows
from loom_worker.store.database import Database
from loom_worker.store.facts import Facts
from loom_worker.store.schema import messages
from loom_worker.store.sessions import Sessions
from loom_worker.store.tables import memory

SESSION = "noted"
_MESSAGE = re.compile(r"^\[(\d+), [\d-]+\] (?:user|assistant): ([^:\n]{1,40}): (.*)$", re.MULTILINE)
_SENTENCE = re.compile(r"(?<=[.!?])\s+")


class LongestSentences:
    """A model that notes of each message its longest sentence, of the longest ones first."""

    name = "scripted"

    def reply(self, request: Request) -> Iterator[ReplyEvent]:
        """See Model.reply."""
        said = [
            (int(number), speaker, max(_SENTENCE.split(text), key=len)[:OBJECT_CHARS])
            for number, speaker, text in _MESSAGE.findall(request.messages[0].text)
        ]
        kept = sorted(said, key=lambda each: -len(each[2]))[:MOST_NOTED]
        facts = [
            {"subject": speaker, "relation": "said", "object": sentence, "message": number, "many": True}
            for number, speaker, sentence in sorted(kept)
        ]
        text = json.dumps({"summary": "They talked.", "facts": facts, "ended": []})
        yield TextDelta(text)
        yield Reply(text, "end_turn", Usage(llm_calls=1), self.name)


def recalled(store: Database, lines: Said, questions: Sequence[str], *, in_l1: int) -> list[set[str]]:
    """For each question the ids of the messages that the facts it recalls come from.

    Args:
        lines: two for each turn.
        in_l1: the newest messages, of which no facts are made yet.
    """
    session = Sessions(store).create(WorkspaceUser(WORKSPACE, "reader"), NewSession(id=SESSION), now_ms=1)
    made = [
        Message(f"{SESSION}/{at}", SESSION, f"{SESSION}-{number // 2}", ChatMessage(role=role, text=text), 40, ms)  # type: ignore[arg-type]
        for number, (at, role, text, ms) in enumerate(lines)
    ]
    with store.write() as tx:
        tx.execute(insert(messages), [rows.message_columns(each, lane=session.lane) for each in made])
        last_n = tx.exec_driver_sql("SELECT max(n) FROM messages").scalar_one()
        tx.execute(insert(memory), {"lane": session.lane, "first_n": last_n + 1 - in_l1})
    compress(store, session.lane, LongestSentences(), batch_size=MemoryTiers().batch_size)
    facts = Facts(store)
    found = (ranked(each, facts.find(session.lane, "user", topic_words(each)), most=MOST_FACTS) for each in questions)
    return [{str(fact.message_id).removeprefix(f"{SESSION}/") for fact in each} for each in found]
