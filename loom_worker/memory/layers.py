"""The layers of a request, what each of their parts costs, and the system text. Pure."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter

from loom_worker.core.text import longest
from loom_worker.core.values.chat import ChatMessage, Frame, ToolOutcome, ToolSpec
from loom_worker.core.values.json import Json
from loom_worker.core.values.sessions import Message

Count = Callable[[str], int]
"""Tokens of a text, as the provider would count them; never too few."""
Mark = Callable[[str], str]
"""A text, so marked that nothing in it can pass for an instruction."""

REQUEST_OVERHEAD_TOKENS = 128
"""The most that a provider adds to any request: Anthropic's own 25 of cl100k's tokens, times the highest factor of a
family; other servers of its format, and conversations it has compacted, about 100 of their own."""

MESSAGE_OVERHEAD_TOKENS = 10
"""Role and separators of a message: 5 of cl100k's tokens at most in recordings, times the highest factor there is."""

CALL_OVERHEAD_TOKENS = 90
"""A tool call with its result, without their texts: 45 of cl100k's tokens at most in recordings, times that factor."""

TOOLS_OVERHEAD_TOKENS = 810
"""The provider's own text about tools: 410 of cl100k's tokens cover every recording; times that factor, rounded up."""

MOST_CORRECTION = 4.0
"""No tokenizer needs more over cl100k's; a server that reports more counts something else."""

CERTAIN_TOKENS = 500
"""Tokens taken as estimated correctly in each request: a short one says little about the error of the estimate."""

MORE_TABLES = "(There are more tables: list_tables names them, get_schema shows their columns.)"


@dataclass(frozen=True, slots=True)
class Layers:
    """Everything that may be sent, before the budget is looked at."""

    rom: str
    """System prompt and backend schema: byte-stable for the life of a session."""
    kernel: Json
    """What is known: user, goals (list), preferences (mapping), and whatever else a client keeps there."""
    schemas: Sequence[Json] = ()
    """``{"name": …, "text": …}`` of tables whose schema has left L1, the latest used last."""
    refs: Sequence[str] = ()
    """References of large results that have left L1, the latest last."""
    l2: str = ""
    """Summaries of what has left L1, the oldest first; they quote what tools gave."""
    mark: Mark = str
    """What is sent of L2 goes through it, once it is cut."""
    history: Sequence[Message] = ()
    """L1: whole turns that have ended, oldest first."""
    recalled: str = ""
    """Added to the current user's message; see recalled.as_text."""
    current: Sequence[ChatMessage] = ()
    """The running turn: the user's message with its context (date, patterns), then replies and results so far."""
    tools: tuple[ToolSpec, ...] = ()


def rom(system_prompt: str, schema: str, *, allowance_tokens: int, count: Count) -> str:
    """Make the system text of a session: the prompt whole, then as many lines of the schema as the allowance takes.

    The same arguments give the same bytes.

    Args:
        schema: empty where there is no database.
        allowance_tokens: ROM's share of the input budget; a prompt that is longer by itself is not cut.
    """
    lines = schema.strip().splitlines()
    whole = _rom(system_prompt, lines)
    if count(whole) <= allowance_tokens or not lines:
        return whole

    def cut(kept: int) -> str:
        return _rom(system_prompt, [*lines[:kept], MORE_TABLES])

    return cut(longest(len(lines) - 1, lambda kept: count(cut(kept)) <= allowance_tokens))


def _rom(system_prompt: str, schema_lines: Sequence[str]) -> str:
    schema = "\n".join(["The database you work on:", *schema_lines]) if schema_lines else ""
    return "\n\n".join(part for part in (system_prompt.strip(), schema) if part)


def turns(history: Sequence[Message]) -> list[tuple[Message, ...]]:
    """Split a history into its turns, oldest first."""
    return [tuple(turn) for _, turn in groupby(history, key=attrgetter("turn_id"))]


def with_added(question: ChatMessage, text: str) -> ChatMessage:
    """The user's message with one more text added at its end."""
    return replace(question, context=f"{question.context}\n\n{text}" if question.context else text)


def message_tokens(message: ChatMessage, count: Count) -> int:
    """Tokens of one message with all its blocks."""
    texts = [message.context, message.text]
    texts += [f"{use.name}{use.arguments}" for use in message.tool_uses]
    texts += [text for outcome in message.outcomes for text in (outcome.name, outcome.content)]
    # Of a block of thinking its text is counted by the provider, and not its signature (recordings).
    texts += _thinking([message])
    overhead = MESSAGE_OVERHEAD_TOKENS + CALL_OVERHEAD_TOKENS * len(message.tool_uses)
    overhead += sum(each.tokens for each in message.all_media)
    return sum(count(text) for text in texts if text) + overhead


def outcome_tokens(outcome: ToolOutcome, count: Count) -> int:
    """Tokens of a result with the images in it."""
    return count(outcome.content) + sum(each.tokens for each in outcome.media)


def _thinking(messages: Sequence[ChatMessage]) -> list[str]:
    return [str(block.get("thinking", block)) for message in messages for block in message.opaque]


def chat_tokens(messages: Iterable[ChatMessage], count: Count) -> int:
    """Tokens of several messages."""
    return sum(message_tokens(message, count) for message in messages)


def tools_tokens(tools: Sequence[ToolSpec], count: Count) -> int:
    """Tokens of the tools' names, descriptions and schemas."""
    described = sum(count(f"{tool.name}{tool.description}{dict(tool.input_schema)}") for tool in tools)
    return described + (TOOLS_OVERHEAD_TOKENS + MESSAGE_OVERHEAD_TOKENS * len(tools) if tools else 0)


def usual_tokens(
    bound_tokens: int, messages: Sequence[ChatMessage], tools: int, *, text_share: float, frame: Frame, count: Count
) -> float:
    """Estimate a request's tokens from the most that they can be.

    The bound's texts are scaled, but what stands around them is counted anew: the highest of each kind, as the bound
    has them, are twice what is usual, and of a short request they are nearly all.

    Args:
        bound_tokens: of the whole request, as ``fit`` counts it.
        tools: how many are offered.
        text_share: the usual tokens of a text over those that were counted.
        count: as the bound's texts were counted.
    """
    if not frame.keeps_thinking:
        question = max((at for at, message in enumerate(messages) if message.role == "user"), default=0)
        bound_tokens -= sum(map(count, _thinking(messages[:question])))
    calls = sum(len(message.tool_uses) for message in messages)
    highest = REQUEST_OVERHEAD_TOKENS + MESSAGE_OVERHEAD_TOKENS * len(messages) + CALL_OVERHEAD_TOKENS * calls
    usual = frame.request + frame.message * len(messages) + frame.call * calls
    if tools:
        highest += TOOLS_OVERHEAD_TOKENS + MESSAGE_OVERHEAD_TOKENS * tools
        usual += frame.tools + frame.tool * tools
    return max(0, bound_tokens - highest) * text_share + usual


def correction(sent_tokens: int, estimated_tokens: float) -> float:
    """The ratio by which estimates are corrected after a reply: what was sent by the provider, over our estimate."""
    return min((sent_tokens + CERTAIN_TOKENS) / (estimated_tokens + CERTAIN_TOKENS), MOST_CORRECTION)


def corrected(estimated_tokens: float, ratio: float) -> float:
    """A request's tokens by the correction that an earlier one gave.

    The error of a short request is added, as it comes from what stands around the texts; that of a long one grows with
    them. Half of an estimate is left in any case: the request before may have been cut.
    """
    return max((estimated_tokens + CERTAIN_TOKENS) * ratio - CERTAIN_TOKENS, estimated_tokens / 2)
