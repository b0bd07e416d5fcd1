"""The tools by which an agent looks beyond its session: summaries by date, and facts.

Which sessions they look into, the agent's file says (``knowledge.scope``); never into another workspace.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from loom_worker.core.date_ranges import date_range
from loom_worker.core.errors import ToolFailed
from loom_worker.core.text import fence, longest
from loom_worker.core.values.chat import ToolSpec, object_schema
from loom_worker.core.values.facts import Fact, topic_words
from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.json import Json
from loom_worker.core.values.tiers import MemoryTiers
from loom_worker.core.values.tools import Caller, Tool
from loom_worker.memory.extract import FORMS, iso_range
from loom_worker.memory.recalled import Room, compact
from loom_worker.memory.summarize import day
from loom_worker.store.dated_summaries import DatedSummaries
from loom_worker.store.facts import Facts

MOST_SUMMARIES, MOST_FACTS = 50, 30
"""Entries of one answer."""
TOPIC_CHARS = 1_000
_LEAST_SHARE = 0.3
"""Share of the score of the best fact: what scores less shares only a common word with the topic."""


@dataclass(frozen=True, slots=True)
class TierParts:
    """What the tools of an agent work with."""

    tiers: MemoryTiers
    summaries: DatedSummaries
    facts: Facts
    room: Room
    now_ms: Callable[[], int] = now_ms
    """The moment from which ``last May`` is read."""


def tier_tools(parts: TierParts) -> tuple[Tool, ...]:
    """The tools of the tiers that the agent has."""

    def summary(arguments: Json, caller: Caller) -> str:
        return _summaries(parts, caller, str(arguments["date_range"]))

    def recall(arguments: Json, caller: Caller) -> str:
        topic = str(arguments["topic"])[:TOPIC_CHARS]
        return _recall(parts, caller, topic, with_history=bool(arguments.get("history", False)))

    by_date = (Tool(_SUMMARY, summary, is_bounded=True),) if parts.tiers.has_summaries else ()
    by_topic = (Tool(_RECALL, recall, is_bounded=True),) if parts.tiers.has_knowledge else ()
    return (*by_date, *by_topic)


def ranked(topic: str, facts: Sequence[Fact], *, most: int) -> tuple[Fact, ...]:
    """The facts that a topic is about, the best first: by the words they share, rare ones counting more.

    Open facts come before closed ones, then those last said.

    Args:
        facts: each with a word of the topic, if it has any; without, all of them are about it.
    """
    words = topic_words(topic)
    having = {fact.id: fact.words & set(words) for fact in facts}
    known = Counter(word for held in having.values() for word in held)
    rarity = {word: math.log(1 + (len(facts) - held + 0.5) / (held + 0.5)) for word, held in known.items()}
    scores = {fact.id: sum(rarity[word] for word in having[fact.id]) for fact in facts}
    best = max(scores.values(), default=0.0)
    near = [fact for fact in facts if scores[fact.id] >= _LEAST_SHARE * best]

    def order(fact: Fact) -> tuple[bool, float, float, int]:
        return fact.until_ms is not None, -round(scores[fact.id], 6), -fact.confidence, -fact.seen_ms

    return tuple(sorted(near, key=order)[:most])


def as_told(fact: Fact) -> Json:
    """A fact as a model reads it."""
    ended = {} if fact.until_ms is None else {"until": day(fact.until_ms), "holds": False}
    by_person = {"confirmed_by": "a person"} if fact.source == "user" else {}
    return {
        "fact": fact.text,
        "since": day(fact.since_ms),
        **ended,
        **({"said_by": fact.user} if fact.user else {}),
        "last_said": day(fact.seen_ms),
        "confidence": round(fact.confidence, 2),
        **by_person,
    }


def as_text(facts: Sequence[Fact], turn_id: str) -> str:
    """Facts as they stand beside a user's message, marked as data; empty where there are none."""
    if not facts:
        return ""
    said = ((each, f" by {each.user}," if each.user else "") for each in facts)
    lines = "\n".join(f"{fact.text} (last said{by} {day(fact.seen_ms)})" for fact, by in said)
    return f"Known from earlier conversations, and perhaps of use:\n{fence(turn_id, lines)}"


def _summaries(parts: TierParts, caller: Caller, text: str) -> str:
    span = iso_range(text) or date_range(text, now_ms=parts.now_ms())
    if span is None:
        raise ToolFailed(
            f"{text[:24]!r} is no date_range; give 2024-05, last May, or 2024-05-01..2024-05-31", "INVALID_INPUT"
        )
    found = parts.summaries.between(
        caller.lane, parts.tiers.scope, from_ms=span[0], to_ms=span[1], limit=MOST_SUMMARIES + 1
    )
    shown = [each.as_json() for each in found[:MOST_SUMMARIES]]
    more = {"more": f"later ones; ask from {shown[-1]['to']} on"} if len(found) > MOST_SUMMARIES else {}
    return _fitted("summaries", shown, more, parts.room)


def _recall(parts: TierParts, caller: Caller, topic: str, *, with_history: bool) -> str:
    words = topic_words(topic)
    if not words:
        return compact({"facts": [], "note": "The topic has no word to look for, so nothing was searched."})
    found = parts.facts.find(caller.lane, parts.tiers.scope, words, with_history=with_history)
    facts = ranked(topic, found, most=MOST_FACTS)
    held = [as_told(fact) for fact in facts if fact.until_ms is None]
    past = [as_told(fact) for fact in facts if fact.until_ms is not None]
    return _fitted("facts", held, {"history": past} if with_history else {}, parts.room)


def _fitted(name: str, entries: Sequence[Json], rest: Json, room: Room) -> str:
    """An answer; where it would be too large, the last entries are left out, and first all that is in ``rest``."""

    def written(kept: int, further: Json) -> str:
        left_out = {"left_out": len(entries) - kept} if kept < len(entries) else {}
        return compact({name: list(entries[:kept]), **further, **left_out})

    whole = written(len(entries), rest)
    if room.holds(whole):
        return whole
    return written(longest(len(entries), lambda kept: room.holds(written(kept, {}))), {})


_SUMMARY = ToolSpec(
    name="memory_summary",
    description=(
        "Read summaries of earlier conversations by date, those of other sessions too: what was talked about in a "
        f"month, a week, on a day. date_range is {FORMS}; or in words: last May, two weeks ago. What was said last is "
        "in no summary yet."
    ),
    input_schema=object_schema(
        "date_range",
        date_range={"type": "string", "minLength": 1, "maxLength": 100},
    ),
)
_RECALL = ToolSpec(
    name="memory_recall",
    description=(
        "Look up what is known for good about the user, people, things and projects, from all conversations: give a "
        "topic in a few words, names or a question. Only what holds now is returned; with history, what held earlier "
        "too, with dates."
    ),
    input_schema=object_schema(
        "topic",
        topic={"type": "string", "minLength": 1},
        history={"type": "boolean", "default": False, "description": "true: also what holds no longer"},
    ),
)
