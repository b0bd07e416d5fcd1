"""The layers of a request: ROM, Kernel, L1 and the running turn. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from loom_worker.values.chat import ChatMessage, ToolOutcome, ToolSpec
from loom_worker.values.json import Json
from loom_worker.values.sessions import Message

Count = Callable[[str], int]
"""Tokens of a text, as the provider would count them; never too few."""

MESSAGE_OVERHEAD_TOKENS = 8
"""Role and separators of a message; the Messages API adds 3 to 7 a message in recordings of it."""

CALL_OVERHEAD_TOKENS = 60
"""A tool call with its result, beside their texts; 45 to 60 in recordings."""


@dataclass(frozen=True, slots=True)
class Layers:
    """Everything that may be sent, before the budget is looked at."""

    rom: str
    """System prompt and backend schema: byte-stable for the life of a session."""
    kernel: Json
    """User, goals, preferences."""
    history: Sequence[Message]
    """Messages of earlier turns, oldest first, with their token counts."""
    current: Sequence[ChatMessage]
    """The running turn: the user's message, then replies and tool results so far."""
    tools: tuple[ToolSpec, ...] = ()


def rom(system_prompt: str, schema: str) -> str:
    """The system text of a new session."""
    parts = [system_prompt.strip()]
    if schema:
        parts.append(f"The database you work on:\n{schema.strip()}")
    return "\n\n".join(part for part in parts if part)


def system_text(layers: Layers) -> str:
    """ROM, then what the kernel knows."""
    known = "\n".join(f"- {name}: {value}" for name, value in sorted(layers.kernel.items()))
    return f"{layers.rom}\n\nWhat is known of this conversation:\n{known}" if known else layers.rom


def message_tokens(message: ChatMessage, count: Count) -> int:
    """Tokens of one message with all its blocks."""
    texts = [message.context, message.text]
    texts += [f"{use.name}{use.arguments}" for use in message.tool_uses]
    texts += [f"{outcome.name}{outcome.content}" for outcome in message.outcomes]
    texts += [str(block) for block in message.opaque]
    overhead = MESSAGE_OVERHEAD_TOKENS + CALL_OVERHEAD_TOKENS * len(message.tool_uses)
    return sum(count(text) for text in texts if text) + overhead


def tools_tokens(tools: Sequence[ToolSpec], count: Count) -> int:
    """Tokens of the tools' names, descriptions and schemas."""
    described = sum(count(f"{tool.name}{tool.description}{dict(tool.input_schema)}") for tool in tools)
    return described + (TOOLS_OVERHEAD_TOKENS + MESSAGE_OVERHEAD_TOKENS * len(tools) if tools else 0)


TOOLS_OVERHEAD_TOKENS = 600
"""The provider's own system text for tool use: 313 to 530 tokens by its public documentation, by model."""


def stubbed(message: ChatMessage) -> ChatMessage:
    """A tool message without its longer results; the pair of call and result stays whole. Any other stays as it is."""
    return replace(message, outcomes=tuple(_stub(outcome) for outcome in message.outcomes))


def _stub(outcome: ToolOutcome) -> ToolOutcome:
    note = f"[{len(outcome.content)} characters left out to fit]"
    return replace(outcome, content=note) if len(note) < len(outcome.content) else outcome
