"""When L1 is too full, and which messages leave it. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from loom_worker.core.values.memory import Level, MemoryPolicy, MemoryState
from loom_worker.core.values.sessions import Message
from loom_worker.memory.layers import Count, turns
from loom_worker.memory.results import Sizes, results_tokens

MOST_L1_MESSAGES = 800
"""More than these are pressure whatever they hold and whatever a policy says: a turn reads them all."""
LEVELS: tuple[Level, ...] = ("normal", "warning", "critical")
"""In the order of MemoryPolicy.batches."""
LEFT = {"thrifty": 0.5, "normal": 0.6, "full": 0.6}
"""Share of the first mark (0-1) that a summary leaves of L1. More remembers hardly more and writes the provider's cache
anew more often: with 0.7 a turn costs 6 % more, with 0.5 as much less."""


@dataclass(frozen=True, slots=True)
class L1Room:
    """What L1 may take."""

    allowance_tokens: int
    """As tokens are counted here."""
    results_tokens: int
    """Part of it that the tool results of one turn may take."""
    most_tokens: int = 0
    """The allowance at most, by what the agent may spend."""
    left_tokens: int | None = None
    """What the other layers leave of the input budget; None: a file goes by numbers, and L1 has its own share."""
    least_tokens: int = 0
    """The allowance at least, half of L1's own share: with less, nearly every turn would be compressed."""

    def beside(self, taken_tokens: int) -> "L1Room":
        """The room where other layers take this much, too."""
        if self.left_tokens is None:
            return self
        left_tokens = self.left_tokens - taken_tokens
        allowance_tokens = max(self.least_tokens, min(self.most_tokens, left_tokens))
        return replace(self, allowance_tokens=allowance_tokens, left_tokens=left_tokens)


def l1_room(budget_tokens: int, *, policy: MemoryPolicy, most_tokens: int, typical: float = 1.0) -> L1Room:
    """Return what L1 may take of an input budget of which the other layers take nothing so far; see beside.

    Where a policy names batches: L1's own share, whatever the others leave.

    Args:
        most_tokens: LOOM_L1_TOKENS; all of L1 is sent, and paid for, with every call.
        typical: the provider's usual tokens over those that are counted. Own share and most are in usual tokens: what
            is counted is the most that a text may take, and would leave a third of them unused.
    """
    most = {"thrifty": most_tokens / 4, "normal": most_tokens, "full": budget_tokens}[policy.spend] / typical
    shares = policy.shares
    own_tokens = int(min(shares.l1 * budget_tokens / typical, most))
    if policy.batches is not None:
        return L1Room(own_tokens, results_tokens(budget_tokens))
    left_tokens = int((shares.rom + shares.kernel + shares.l1 + shares.l2) * budget_tokens)
    return L1Room(0, results_tokens(budget_tokens), int(most), left_tokens, own_tokens // 2).beside(0)


def kept_tokens(state: MemoryState, count: Count) -> int:
    """Tokens of what compression keeps in the context: summaries, schemas and references."""
    texts = (state.l2_text, *(str(schema["text"]) for schema in state.schemas), *state.refs)
    return sum(count(text) for text in texts if text)


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

    No more than bring L1 down to a part of its first mark, so that the next time is far off. Where the policy names
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
    wanted = by_level[LEVELS.index(level)] if by_level else _needed(ends, tokens, room, policy)
    end = next((end for end in may if end >= wanted), may[-1])
    return Batch(level, tuple(history[:end]))


def _most_messages(policy: MemoryPolicy) -> int:
    return min(policy.max_l1_messages or MOST_L1_MESSAGES, MOST_L1_MESSAGES)


def _needed(ends: Sequence[int], tokens: Sequence[int], room: L1Room, policy: MemoryPolicy) -> int:
    """How many messages must go until L1 is down to its part of the first mark, and of the most messages.

    Args:
        ends: messages up to the end of each turn.
        tokens: of each turn.
    """
    mark = policy.warning_at if policy.normal_at is None else policy.normal_at
    most_tokens = LEFT[policy.spend] * mark * room.allowance_tokens
    most_messages = LEFT[policy.spend] * _most_messages(policy)
    left = sum(tokens)
    for end, needed in zip(ends, tokens, strict=True):
        left -= needed
        if left <= most_tokens and ends[-1] - end <= most_messages:
            return end
    return ends[-1]


def l2_is_full(l2_tokens: int, *, policy: MemoryPolicy, allowance_tokens: int) -> bool:
    """Whether L2 must go to swap; ``allowance_tokens``: L2's own share of the input budget."""
    return l2_tokens > min(policy.max_l2_tokens, allowance_tokens)
