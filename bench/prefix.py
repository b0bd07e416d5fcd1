"""What of a request a provider's prefix cache knows from the requests before. Pure."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, takewhile
from typing import Any

from loom_worker.core.values.chat import Usage

Json = dict[str, Any]

LOOK_BACK = 20
"""Blocks before a mark, it included, at whose ends the provider looks for an entry (its documentation)."""
LEAST_TOKENS = 1024
"""No shorter prefix is kept (Sonnet; some other models take 4,096)."""


@dataclass(frozen=True)
class Block:
    """A tool, a block of the system text, or a block of a message."""

    text: str
    """All that the provider sees of it, its mark apart; two blocks that are the same bytes are equal."""
    tokens: float = field(compare=False)
    is_marked: bool = field(compare=False)


def request_blocks(body: Json, count: Callable[[str], float]) -> list[Block]:
    """Lay a request out in the order in which prefixes are compared: tools, system text, messages."""
    placed: list[tuple[Any, Json]] = [("tools", tool) for tool in body.get("tools", [])]
    placed += [("system", block) for block in body.get("system", [])]
    # Another tool_choice leaves the entries of tools and system text valid, those of messages not (documentation).
    choice = body.get("tool_choice")
    placed += [([m["role"], choice], block) for m in body["messages"] for block in m["content"]]
    return [_block(place, block, count) for place, block in placed]


def _block(place: Any, block: Json, count: Callable[[str], float]) -> Block:
    seen = {name: part for name, part in block.items() if name != "cache_control"}
    parts = [part if isinstance(part, str) else json.dumps(part) for part in seen.values()]
    return Block(json.dumps([place, seen]), sum(map(count, parts)), "cache_control" in block)


def shared(before: Sequence[Block], after: Sequence[Block], *, of: Sequence[Block] | None = None) -> float:
    """Whole blocks of a prefix that both have, as a share (0-1) of the tokens of one: the later, if not told."""
    same = takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False))
    return sum(block.tokens for _, block in same) / sum(block.tokens for block in of or after)


@dataclass
class PrefixCache:
    """A provider's cache that forgets nothing: requests come within its five minutes."""

    least_tokens: int = LEAST_TOKENS
    _entries: set[int] = field(default_factory=set)

    def ask(self, blocks: Sequence[Block]) -> Usage:
        """What the provider would bill for this request's input."""
        tokens = [0.0, *accumulate(block.tokens for block in blocks)]
        prefixes = [0, *accumulate((hash(block) for block in blocks), lambda so_far, each: hash((so_far, each)))]
        marks = [n for n, block in enumerate(blocks, start=1) if block.is_marked and tokens[n] >= self.least_tokens]
        places = {n for mark in marks for n in range(max(1, mark - LOOK_BACK + 1), mark + 1)}
        read = max((n for n in places if prefixes[n] in self._entries), default=0)
        written = max([read, *marks])
        self._entries |= {prefixes[mark] for mark in marks}
        return Usage(
            input_tokens=round(tokens[-1] - tokens[written]),
            cache_write_tokens=round(tokens[written] - tokens[read]),
            cache_read_tokens=round(tokens[read]),
        )
