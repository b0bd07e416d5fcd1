"""Packing the layers under a hard token budget. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from loom_worker.errors import BudgetExceeded
from loom_worker.memory.layers import Count, Layers, message_tokens, stubbed, system_text, tools_tokens
from loom_worker.values.chat import ChatMessage
from loom_worker.values.json import Json
from loom_worker.values.sessions import Message


@dataclass(frozen=True, slots=True)
class Context:
    """What will be sent, and what it costs."""

    system: str
    messages: tuple[ChatMessage, ...]
    tokens: Json
    """Tokens of each layer: tools, rom (kernel included), l1, turn; their sum is within the budget."""


def fit(layers: Layers, *, budget_tokens: int, count: Count) -> Context:
    """Keep the system text and the running turn, then as much of the history as fits, newest first.

    A tool call and its result stay or go together: the API refuses either alone. If the running turn alone is too
    large, its oldest tool results are left out first.

    Args:
        budget_tokens: input tokens, output reserve already taken off.

    Raises:
        BudgetExceeded: tools, system text and the running turn do not fit by themselves.
    """
    system = system_text(layers)
    fixed = {"tools": tools_tokens(layers.tools, count), "rom": count(system)}
    left = budget_tokens - sum(fixed.values())
    current = _fit_turn(layers.current, left, count)
    turn_tokens = sum(message_tokens(message, count) for message in current)
    kept, l1_tokens = _newest(layers.history, left - turn_tokens)
    return Context(
        system=system,
        messages=(*(message.chat for message in kept), *current),
        tokens={**fixed, "l1": l1_tokens, "turn": turn_tokens},
    )


def _fit_turn(current: Sequence[ChatMessage], left: int, count: Count) -> tuple[ChatMessage, ...]:
    kept = list(current)
    total = sum(message_tokens(message, count) for message in kept)
    for place, message in enumerate(kept):
        if total <= left:
            break
        stub = stubbed(message)
        saved = message_tokens(message, count) - message_tokens(stub, count)
        if saved > 0:
            kept[place] = stub
            total -= saved
    if total > left:
        raise BudgetExceeded(
            f"This turn needs {total} tokens beside the system text and tools, and {max(left, 0)} are free. "
            "Send a shorter message, or raise LOOM_MAX_CONTEXT_TOKENS if the model's window is larger."
        )
    return tuple(kept)


def _newest(history: Sequence[Message], left: int) -> tuple[list[Message], int]:
    kept: list[Message] = []
    total = 0
    for unit in reversed(_units(history)):
        tokens = sum(message.token_count for message in unit)
        if total + tokens > left:
            break
        kept[:0] = unit
        total += tokens
    while kept and kept[0].chat.role != "user":
        total -= kept.pop(0).token_count
    return kept, total


def _units(history: Sequence[Message]) -> list[list[Message]]:
    """Messages that stay or go together: an assistant's calls with their results, anything else alone."""
    units: list[list[Message]] = []
    for message in history:
        if message.chat.role == "tool" and units and units[-1][-1].chat.tool_uses:
            units[-1].append(message)
        else:
            units.append([message])
    return units
