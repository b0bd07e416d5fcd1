"""When L1 is too full, and which messages leave it. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from loom_worker.core.values.memory import Level, MemoryPolicy
from loom_worker.core.values.sessions import Message
from loom_worker.memory.layers import turns
from loom_worker.memory.results import results_tokens
from loom_worker.memory.sizes import Sizes

MOST_L1_MESSAGES = 800
"""More than these are pressure whatever they hold and whatever a policy says: a turn reads them all."""
LEVELS: tuple[Level, ...] = ("normal", "warning", "critical")
"""In the order of MemoryPolicy.batches."""


@dataclass(frozen=True, slots=True)
class L1Room:
    """What L1 may take, whatever the other layers leave unused."""

    allowance_tokens: int
    """L1's own share of the input budget, at most LOOM_L1_TOKENS, as tokens are counted here."""
    results_tokens: int
    """Of it, what the tool results of one turn may take."""


def l1_room(budget_tokens: int, *, policy: MemoryPolicy, most_tokens: int, typical: float = 1.0) -> L1Room:
    """Return what L1 may take of an input budget.

    Args:
        most_tokens: LOOM_L1_TOKENS; all of L1 is sent, and paid for, with every call.
        typical: the provider's usual tokens over those that are counted. Share and most are in usual tokens: what is
            counted is the most that a text may take, and would leave a third of the share unused. The window's hard
            limit is kept where a request is packed.
    """
    usual_tokens = min(policy.shares.l1 * budget_tokens, most_tokens)
    return L1Room(int(usual_tokens / typical), results_tokens(budget_tokens))


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages that are to become a summary: whole turns, the oldest of L1."""

    level: Level
    messages: tuple[Message, ...]


def pressure(l1_tokens: int, l1_messages: int, *, allowance_tokens: int, policy: MemoryPolicy) -> Level | None:
    """How full L1 is; None: nothing needs to leave it.

    Args:
        allowance_tokens: as in L1Room.
    """
    share = l1_tokens / allowance_tokens if allowance_tokens > 0 else float(l1_tokens > 0)
    most_messages = _most_messages(policy)
    if share >= policy.critical_at or l1_messages > 2 * most_messages:
        return "critical"
    if share >= policy.warning_at:
        return "warning"
    is_marked = policy.normal_at is not None and share >= policy.normal_at
    return "normal" if is_marked or l1_messages > most_messages else None


def l1_tokens(history: Sequence[Message], *, room: L1Room, sizes: Sizes) -> int:
    """Tokens of L1 as it is sent, the results of its turns bounded."""
    return sum(_turn_tokens(turns(history), room, sizes))


def _turn_tokens(ended: Sequence[Sequence[Message]], room: L1Room, sizes: Sizes) -> list[int]:
    return [sizes.of_turn(turn, budget_tokens=room.results_tokens).tokens for turn in ended]


def batch(history: Sequence[Message], *, room: L1Room, policy: MemoryPolicy, sizes: Sizes) -> Batch | None:
    """Choose the oldest whole turns that must leave L1; None where nothing must, or may.

    As many as bring L1 down to half of its first mark, so that the next time is far off. Where the policy names
    batches: as many messages as it says for the level, more where a turn would be parted. Fewer where the newest turn
    or the least that L1 must keep would be touched.

    Args:
        history: L1 from its very beginning, oldest first.
        sizes: remembers what past turns take.
    """
    ended = turns(history)
    tokens = _turn_tokens(ended, room, sizes)
    level = pressure(sum(tokens), len(history), allowance_tokens=room.allowance_tokens, policy=policy)
    if level is None:
        return None
    ends = list(accumulate(map(len, ended)))
    may = [end for end in ends[:-1] if len(history) - end >= policy.min_l1_messages]
    if not may:
        return None
    by_level = policy.batches
    wanted = by_level[LEVELS.index(level)] if by_level else _half(ends, tokens, room, policy)
    end = next((end for end in may if end >= wanted), may[-1])
    return Batch(level, tuple(history[:end]))


def _most_messages(policy: MemoryPolicy) -> int:
    return min(policy.max_l1_messages or MOST_L1_MESSAGES, MOST_L1_MESSAGES)


def _half(ends: Sequence[int], tokens: Sequence[int], room: L1Room, policy: MemoryPolicy) -> int:
    """How many messages must go until half of the first mark, and half of the most messages, is free.

    Args:
        ends: messages up to the end of each turn.
        tokens: of each turn.
    """
    mark = policy.warning_at if policy.normal_at is None else policy.normal_at
    most_tokens = mark * room.allowance_tokens / 2
    most_messages = _most_messages(policy) / 2
    left = sum(tokens)
    for end, needed in zip(ends, tokens, strict=True):
        left -= needed
        if left <= most_tokens and ends[-1] - end <= most_messages:
            return end
    return ends[-1]


def l2_is_full(l2_tokens: int, *, policy: MemoryPolicy, allowance_tokens: int) -> bool:
    """Whether L2 must go to swap.

    Args:
        allowance_tokens: L2's own share of the input budget.
    """
    return l2_tokens > min(policy.max_l2_tokens, allowance_tokens)
