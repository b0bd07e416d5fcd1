"""Packing the layers under a hard token budget. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

from loom_worker.core.errors import BudgetExceeded
from loom_worker.core.text import longest
from loom_worker.core.values.chat import ChatMessage, ToolSpec
from loom_worker.core.values.json import Json
from loom_worker.core.values.memory import Shares
from loom_worker.core.values.sessions import Message
from loom_worker.memory.kernel import L2_CUT, kernel_text, memory_text
from loom_worker.memory.layers import (
    REQUEST_OVERHEAD_TOKENS,
    Count,
    Layers,
    Mark,
    chat_tokens,
    message_tokens,
    turns,
    with_added,
)
from loom_worker.memory.results import Sizes, bounded, folded, results_tokens, rounds, stubbed

Chats = tuple[ChatMessage, ...]
Bound = Callable[[Sequence[ChatMessage]], Chats]

L2_OVERSHOOT = 2
"""Times its share that L2 may take: it is over it until its snapshot is taken, but must not drive L1 out."""


@dataclass(frozen=True, slots=True)
class Context:
    """What will be sent, and what it costs."""

    system: str
    """ROM."""
    memory: str
    """Kernel and L2, to stand at the head of the messages; may be empty."""
    messages: Chats
    """L1, then the running turn."""
    l1_messages: int
    tokens: Json
    """Tokens of tools, rom, kernel, l2, l1, recalled, patterns and turn; their sum is within the budget. ``patterns``
    are the texts added to users' messages, without the recalled block; l1 and turn are without them."""
    tools: tuple[ToolSpec, ...] = ()


def fit(layers: Layers, *, budget_tokens: int, shares: Shares, has_swap: bool, sizes: Sizes) -> Context:
    """Keep tools, ROM and the running turn; then kernel, recalled block and L2; then L1, newest turns first.

    Nothing is cut before it must be, so that a call begins with the bytes of the call before. Where no turn runs, the
    recalled block is counted but stands nowhere.

    Args:
        budget_tokens: input tokens, output reserve already taken off.
        has_swap: the model has tools to look for what has left its context.
        sizes: counts tokens, and remembers what past turns take.

    Raises:
        BudgetExceeded: tools, ROM and the running turn do not fit, even without the turn's results.
    """
    count = sizes.count
    tokens = {"tools": sizes.of_tools(layers.tools), "rom": count(layers.rom) + REQUEST_OVERHEAD_TOKENS}
    bound = partial(bounded, budget_tokens=results_tokens(budget_tokens), count=count)
    say = partial(kernel_text, layers.kernel, layers.schemas, layers.refs, count=count)

    known = say(allowance_tokens=int(shares.kernel * budget_tokens))
    free = budget_tokens - sum(tokens.values())
    turn, turn_tokens = _running(layers.current, bound, tokens, free=free, taken=count(known), count=count)
    free -= turn_tokens
    if count(known) > free:
        known = say(allowance_tokens=free)
    tokens["kernel"] = count(known)
    free -= tokens["kernel"]
    sent, tokens["recalled"] = _with_recalled(turn, layers.recalled, free, count)
    free -= tokens["recalled"]
    l2_room = min(free, int(L2_OVERSHOOT * shares.l2 * budget_tokens))
    say_l2 = partial(_memory, known, mark=layers.mark, has_swap=has_swap)
    memory, tokens["l2"] = _with_l2(layers.l2, l2_room, say_l2, lambda text: max(0, count(text) - tokens["kernel"]))
    history, l1_tokens, added_to_l1 = _newest(layers.history, free - tokens["l2"], sizes, results_tokens(budget_tokens))
    added_to_turn = _added(turn, count)
    tokens |= {
        "l1": l1_tokens - added_to_l1,
        "patterns": added_to_l1 + added_to_turn,
        "turn": turn_tokens - added_to_turn,
    }
    return Context(layers.rom, memory, (*history, *sent), len(history), tokens, layers.tools)


def _running(
    current: Sequence[ChatMessage], bound: Bound, fixed: Json, *, free: int, taken: int, count: Count
) -> tuple[Chats, int]:
    """The running turn and its tokens: its older results go before the kernel, its latest and its calls after it."""
    latest = [place for place, message in enumerate(current) if message.outcomes][-1:]
    without_older = partial(stubbed, current, spare=latest, count=count)
    forms: tuple[tuple[Callable[[], Chats], int], ...] = (
        (partial(bound, current), free - taken),
        (without_older, free - taken),
        (without_older, free),
        (partial(stubbed, current, count=count), free),
    )
    for shorten, room in forms:
        turn = shorten()
        needed = chat_tokens(turn, count)
        if needed <= room:
            return turn, needed
    # Nothing is left of the results, and still it is too much: the calls themselves go.
    there = rounds(turn)
    kept = longest(there, lambda number: chat_tokens(folded(turn, there - number), count) <= free)
    turn = folded(turn, there - kept)
    needed = chat_tokens(turn, count)
    if needed <= free:
        return turn, needed
    raise BudgetExceeded(
        f"This turn needs {needed} tokens even without its tool calls, and {max(free, 0)} remain after the tools "
        f"({fixed['tools']} tokens) and the system text ({fixed['rom']}). Send a shorter message, give the agent fewer "
        "tools or a shorter system prompt, or raise LOOM_MAX_CONTEXT_TOKENS if the model's window is larger."
    )


def _with_recalled(turn: Chats, recalled: str, free: int, count: Count) -> tuple[Chats, int]:
    """Put the recalled block behind the context of the user's message, if it fits.

    Behind, since that context is sent again in later turns and the block is not: so their common beginning is longer.
    """
    if not recalled or not turn:
        return turn, cost if (cost := count(recalled)) <= free else 0
    asked = with_added(turn[0], recalled)
    cost = max(0, message_tokens(asked, count) - message_tokens(turn[0], count))
    return ((asked, *turn[1:]), cost) if cost <= free else (turn, 0)


def _memory(known: str, l2: str, *, mark: Mark, has_swap: bool) -> str:
    return memory_text(known, mark(l2) if l2.strip() else "", has_swap=has_swap)


def _with_l2(l2: str, room: int, say: Callable[[str], str], cost: Callable[[str], int]) -> tuple[str, int]:
    """The text of kernel and L2, and the tokens of L2; where it is too long, its oldest lines are left out.

    Args:
        say: an L2 to that text.
        cost: the tokens which that text takes in addition to the kernel.
    """
    if (needed := cost(whole := say(l2))) <= room:
        return whole, needed
    lines = l2.strip().splitlines()

    def cut(number: int) -> str:
        return say("\n".join([L2_CUT, *lines[len(lines) - number :]]) if number else "")

    text = cut(longest(len(lines) - 1, lambda number: cost(cut(number)) <= room))
    return text, cost(text)


def _newest(history: Sequence[Message], free: int, sizes: Sizes, results_budget_tokens: int) -> tuple[Chats, int, int]:
    """As many whole turns as fit, as they were sent, their tokens, and those of texts added to users' messages.

    A turn that does not fit is tried without its results, and ends the walk, as does one whose question was not read:
    there are no holes.
    """
    kept: list[Chats] = []
    tokens = added_tokens = 0
    for turn in reversed(turns(history)):
        if turn[0].chat.role != "user":
            break
        size = sizes.of_turn(turn, budget_tokens=results_budget_tokens)
        if tokens + size.tokens > free:
            sent = stubbed([message.chat for message in turn], count=sizes.count)
            needed = chat_tokens(sent, sizes.count)
            if tokens + needed <= free:
                kept.append(sent)
                tokens, added_tokens = tokens + needed, added_tokens + _added(sent, sizes.count)
            break
        kept.append(sizes.sent(turn, size, budget_tokens=results_budget_tokens))
        tokens, added_tokens = tokens + size.tokens, added_tokens + size.added_tokens
    return tuple(chain.from_iterable(reversed(kept))), tokens, added_tokens


def _added(messages: Chats, count: Count) -> int:
    return sum(count(message.context) for message in messages)
