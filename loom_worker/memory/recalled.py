"""Messages from earlier that were asked back, as text beside the current user's message. Pure."""

from collections.abc import Callable, Iterator, Sequence

from loom_worker.core.values.json import rfc3339
from loom_worker.core.values.sessions import Message
from loom_worker.memory.layers import Count
from loom_worker.memory.results import call_text

RECALLED_SHARE = 0.15
"""Of the input budget (0-1), for all messages that are recalled at a time."""
RESULT_CHARS = 1_000
"""Of each tool result in the block."""
OPENING = "<recalled>\nSaid earlier in this conversation, and recalled; it is not new:"
CLOSING = "</recalled>"


Fence = Callable[[str, str], str]
"""(turn id, what a tool gave) to that text marked as data."""


def as_text(messages: Sequence[Message], fence: Fence) -> str:
    """Write the block of recalled messages, in the order of the conversation; empty where there are none.

    Only its own two marks begin a line in it: further lines of what was said are set in.
    """
    ordered = sorted(messages, key=lambda message: message.n)
    entries = [entry for message in ordered for entry in _entries(message, fence)]
    return "\n".join([OPENING, *entries, CLOSING]) if entries else ""


def recalled_tokens(messages: Sequence[Message], count: Count, fence: Fence) -> int:
    """Tokens of the block of these messages."""
    return count(as_text(messages, fence))


def moment_of(message: Message) -> str:
    """When it was said, to the minute (UTC)."""
    return (rfc3339(message.created_ms) or "")[:16].replace("T", " ")


def _entries(message: Message, fence: Fence) -> Iterator[str]:
    chat = message.chat
    moment = moment_of(message)
    if chat.text.strip():
        yield _entry(moment, chat.role, chat.text)
    for use in chat.tool_uses:
        yield _entry(moment, chat.role, f"called {call_text(use.name, use.arguments)}")
    for outcome in chat.outcomes:
        yield _entry(moment, f"result of {outcome.name}", fence(message.turn_id, _beginning(outcome.content)))


def _beginning(content: str) -> str:
    more = len(content) - RESULT_CHARS
    return content if more <= 0 else f"{content[:RESULT_CHARS]}… ({more} more characters)"


def _entry(moment: str, who: str, text: str) -> str:
    return "\n  ".join(f"[{moment} UTC] {who}: {text.strip()}".splitlines())
