"""A part of a session that has left the active window becomes a summary by date and facts, in one call of the model."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from loom_worker.core import metrics
from loom_worker.core.errors import Interrupted, LoomError, ProviderFailed, Unavailable
from loom_worker.core.text import clean
from loom_worker.core.values.chat import Usage
from loom_worker.core.values.facts import SPEAKER, Fact, LearnedFacts
from loom_worker.core.values.memory import DatedSummary, Summary
from loom_worker.core.values.sessions import Message, Session
from loom_worker.core.values.tiers import MemoryTiers
from loom_worker.llm.model import Model, whole_reply
from loom_worker.memory import heuristic
from loom_worker.memory.extract import Extraction, Material, about, asked, read
from loom_worker.memory.layers import turns
from loom_worker.memory.summarize import HEURISTIC, LEAST_TOKENS, PART, CompressionRules, is_no_summary

log = logging.getLogger(__name__)

MOST_TOKENS = 600
"""Tokens of one summary by date: some ten of them fit an answer of the tool that shows them."""

AGAIN = "\n\nYour last answer could not be read: give the JSON object alone, whole, and no more than half as long."


@dataclass(frozen=True, slots=True)
class Noted:
    """What was made of a part of a session."""

    messages: tuple[Message, ...]
    summary: Summary
    """Without text where the agent wants no summaries."""
    learned: LearnedFacts | None
    """None: the agent wants no facts, or there was no model to find any."""

    def dated(self, summary_id: str, *, token_count: int, now_ms: int) -> DatedSummary:
        """The summary as it is stored."""
        first, last = self.messages[0], self.messages[-1]
        return DatedSummary(
            id=summary_id,
            session_id=first.session_id,
            content=self.summary.text,
            by_model=self.summary.by,
            token_count=token_count,
            messages=len(self.messages),
            from_n=first.n,
            to_n=last.n,
            # Chats that were moved in need not be in the order of their dates.
            from_ms=min(each.created_ms for each in self.messages),
            to_ms=max(each.created_ms for each in self.messages),
            created_ms=now_ms,
        )


def wants(tiers: MemoryTiers | None) -> bool:
    """True if anything is made of what leaves the active window."""
    return tiers is not None and (tiers.has_summaries or tiers.learns)


def part(left: Sequence[Message], tiers: MemoryTiers) -> tuple[Message, ...]:
    """The oldest whole turns that have a batch of messages, or all there are.

    Args:
        left: messages that have left the active window, whole turns, oldest first.
    """
    chosen: list[Message] = []
    for turn in turns(left):
        if len(chosen) >= tiers.batch_size:
            break
        chosen += turn
    return tuple(chosen)


def person(session: Session, tiers: MemoryTiers) -> str:
    """The subject of facts about whoever writes: by name where a workspace's users share their facts."""
    return SPEAKER if tiers.scope != "workspace" else session.user or f"user of {session.id}"


def note(messages: Sequence[Message], rules: CompressionRules, known: Sequence[Fact], session: Session) -> Noted:
    """Summarize a part of a session, and find the facts that it states.

    Args:
        rules: with tiers.
        known: facts that hold in the scope, those last said first.

    Raises:
        Interrupted: this worker must stop.
        Unavailable: the database did not answer.
    """
    tiers = rules.tiers or MemoryTiers()
    subject = person(session, tiers)
    material = Material(messages, about(known, messages, subject), subject, has_facts=tiers.learns)
    tokens = sum(message.token_count for message in messages)
    most_tokens = min(max(tokens // PART, LEAST_TOKENS), MOST_TOKENS)
    model = rules.model if tiers.strategy == "summarize" else None
    answer, by, spent, paid = _answered(model, material, rules, most_tokens)
    text = clean(answer.summary) if answer is not None else ""
    if rules.count(text) > 2 * most_tokens:
        text = heuristic.shorten(text, most_tokens=most_tokens, count=rules.count)
    if not tiers.has_summaries:
        text = ""
    elif not text:
        text, by = heuristic.summarize(messages, most_tokens=most_tokens, count=rules.count), HEURISTIC
    learned = None
    if answer is not None and tiers.learns:
        for why, number in answer.dropped.items():
            metrics.FACTS_DROPPED.count(why, by=number)
        if answer.dropped:
            log.warning("facts of %s are not kept: %s", by, dict(answer.dropped), extra={"session": session.id})
        learned = LearnedFacts(tiers.scope, answer.statements, answer.ended, tiers.users_write)
    return Noted(tuple(messages), Summary(text, by, spent, paid), learned)


def _answered(
    model: Model | None, material: Material, rules: CompressionRules, most_tokens: int
) -> tuple[Extraction | None, str, Usage, str]:
    """What the model made of it, None if it made nothing; who wrote it, what it cost, and the model that was paid."""
    spent, paid = Usage(), ""
    if model is None:
        return None, HEURISTIC, spent, paid
    request = asked(material, most_tokens=most_tokens, budget_tokens=rules.budget_tokens, count=rules.count)
    answer = None
    again = replace(request.messages[0], text=request.messages[0].text + AGAIN)
    try:
        for each in (request, replace(request, messages=(again,))):
            reply = whole_reply(model, each)
            spent, paid = spent + reply.usage, reply.model
            answer = (read(reply.text, material) if reply.stop_reason != "refusal" else None) or answer
            if answer is not None and (answer.statements or not answer.dropped["unreadable"]):
                break
        if answer is None:
            raise ProviderFailed(f"The compressor gave no summary by date ({reply.stop_reason}).")
        if is_no_summary(answer.summary, request):
            answer = replace(answer, summary="")
        return answer, reply.model, spent, paid
    except (Interrupted, Unavailable):
        raise  # the database is away: a summary without the model would stay
    except LoomError as error:
        log.warning("summary by date without the model: %s", error)
        return None, HEURISTIC, spent, paid
