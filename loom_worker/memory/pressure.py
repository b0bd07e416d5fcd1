"""When L1 is too full, and which messages leave it. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from loom_worker.memory.layers import Count, chat_tokens, turns
from loom_worker.memory.results import bounded, results_tokens
from loom_worker.values.memory import Level, MemoryPolicy
from loom_worker.values.sessions import Message

LEVELS: tuple[Level, ...] = ("normal", "warning", "critical")
"""In the order of MemoryPolicy.batches."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages that are to become a summary: whole turns, the oldest of L1."""

    level: Level
    messages: tuple[Message, ...]


def pressure(l1_tokens: int, l1_messages: int, *, allowance_tokens: int, policy: MemoryPolicy) -> Level | None:
    """How full L1 is; None: nothing needs to leave it.

    Args:
        allowance_tokens: L1's own share of the input budget, whatever the other layers leave unused.
    """
    share = l1_tokens / allowance_tokens if allowance_tokens > 0 else float(l1_tokens > 0)
    if share >= policy.critical_at or l1_messages > 2 * policy.max_l1_messages:
        return "critical"
    if share >= policy.warning_at:
        return "warning"
    is_marked = policy.normal_at is not None and share >= policy.normal_at
    return "normal" if is_marked or l1_messages > policy.max_l1_messages else None


def l1_tokens(history: Sequence[Message], *, allowance_tokens: int, policy: MemoryPolicy, count: Count) -> int:
    """Tokens of L1 as it is sent, the results of its turns bounded."""
    share = policy.shares.l1
    bound = results_tokens(round(allowance_tokens / share)) if share else 0
    sent = (bounded([message.chat for message in turn], budget_tokens=bound, count=count) for turn in turns(history))
    return sum(chat_tokens(turn, count) for turn in sent)


def batch(history: Sequence[Message], *, allowance_tokens: int, policy: MemoryPolicy, count: Count) -> Batch | None:
    """Choose the oldest whole turns that must leave L1; None where nothing must, or may.

    As many messages as the policy says for the level, more where a turn would be parted, fewer where the newest turn
    or the least that L1 must keep would be touched.

    Args:
        history: L1 from its very beginning, oldest first.
        allowance_tokens: as in pressure.
    """
    tokens = l1_tokens(history, allowance_tokens=allowance_tokens, policy=policy, count=count)
    level = pressure(tokens, len(history), allowance_tokens=allowance_tokens, policy=policy)
    if level is None:
        return None
    wanted = policy.batches[LEVELS.index(level)]
    ends = list(accumulate(len(turn) for turn in turns(history)))
    may = [end for end in ends[:-1] if len(history) - end >= policy.min_l1_messages]
    if not may:
        return None
    end = next((end for end in may if end >= wanted), may[-1])
    return Batch(level, tuple(history[:end]))


def l2_is_full(l2_tokens: int, *, policy: MemoryPolicy, allowance_tokens: int) -> bool:
    """Whether L2 must go to swap.

    Args:
        allowance_tokens: L2's own share of the input budget.
    """
    return l2_tokens > min(policy.max_l2_tokens, allowance_tokens)
