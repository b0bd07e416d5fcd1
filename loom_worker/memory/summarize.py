"""One summary in words: by the compressor model, or without one where there is none or it fails."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from loom_worker.core.errors import Interrupted, LoomError, ProviderFailed
from loom_worker.core.values.chat import Reply, Request, Usage
from loom_worker.core.values.memory import MemoryPolicy, Summary
from loom_worker.core.values.sessions import Message
from loom_worker.llm.model import Model, whole_reply
from loom_worker.memory import heuristic, summary_prompt
from loom_worker.memory.layers import Count
from loom_worker.memory.pressure import L1Room

log = logging.getLogger(__name__)

PART, LEAST_TOKENS, MOST_TOKENS = 5, 120, 2_500
"""Notes take a fifth of what they are about, within these bounds: five to ten times shorter is what a model reaches
without losing facts. The half of a full L1 is 17,000 tokens, so its notes are seven times shorter."""
DIGEST_PART = 5
"""A digest takes a fifth of L2's allowance: the rest is for what comes."""
LEAST_PART = 0.01
"""Of what it is about; what is shorter says nothing of most of it."""
HEURISTIC = "heuristic"


@dataclass(frozen=True, slots=True)
class CompressionRules:
    """What an agent's sessions are compressed by."""

    policy: MemoryPolicy
    model: Model | None
    """None: there is no LLM to ask."""
    count: Count
    l1: L1Room
    l2_tokens: int
    """What L2 may take before it becomes a snapshot."""
    budget_tokens: int
    """What one request to the compressor may hold."""


def of_part(messages: Sequence[Message], rules: CompressionRules, *, tokens: int) -> Summary:
    """Notes on a part of a conversation.

    Args:
        tokens: of the part.

    Raises:
        Interrupted: this worker must stop.
    """
    most_tokens = min(max(tokens // PART, LEAST_TOKENS), MOST_TOKENS, max(rules.l2_tokens // 2, 1))
    return _written(
        rules,
        lambda: summary_prompt.for_part(
            messages, most_tokens=most_tokens, budget_tokens=rules.budget_tokens, count=rules.count
        ),
        lambda: heuristic.summarize(messages, most_tokens=most_tokens, count=rules.count),
        of_tokens=tokens,
        most_tokens=most_tokens,
    )


def of_notes(notes: str, rules: CompressionRules) -> Summary:
    """One shorter version of all notes so far.

    Raises:
        Interrupted: this worker must stop.
    """
    most_tokens = max(rules.l2_tokens // DIGEST_PART, 1)
    return _written(
        rules,
        lambda: summary_prompt.for_digest(notes, most_tokens=most_tokens),
        lambda: heuristic.shorten(notes, most_tokens=most_tokens, count=rules.count),
        of_tokens=rules.l2_tokens,
        most_tokens=most_tokens,
    )


def _written(
    rules: CompressionRules, asked: Callable[[], Request], alone: Callable[[], str], *, of_tokens: int, most_tokens: int
) -> Summary:
    if rules.model is None:
        return Summary(alone(), HEURISTIC)
    spent, paid = Usage(), ""
    try:
        reply = whole_reply(rules.model, asked())
        spent, paid = reply.usage, reply.model
        return Summary(_usable(reply, rules, of_tokens=of_tokens, most_tokens=most_tokens), reply.model, spent, paid)
    except Interrupted:
        raise
    except LoomError as error:
        log.warning("summary without the model: %s", error)
        return Summary(alone(), HEURISTIC, spent, paid)


def _usable(reply: Reply, rules: CompressionRules, *, of_tokens: int, most_tokens: int) -> str:
    text = reply.text.strip()
    if reply.stop_reason in ("refusal", "max_tokens") or not text:
        raise ProviderFailed(f"The compressor gave no summary ({reply.stop_reason}).")
    if rules.count(text) < LEAST_PART * of_tokens:
        raise ProviderFailed("The compressor gave no summary worth the name.")
    is_long = rules.count(text) > 2 * most_tokens
    return heuristic.shorten(text, most_tokens=most_tokens, count=rules.count) if is_long else text
