"""Messages that were recalled, as text added to the current user's message. Pure."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from loom_worker.core.text import longest
from loom_worker.core.values.json import Json, rfc3339
from loom_worker.core.values.sessions import Message
from loom_worker.memory.layers import Count
from loom_worker.memory.results import call_text

RECALLED_SHARE = 0.15
"""Share of the input budget (0-1), for all messages that are recalled at a time."""
RESULT_CHARS = 1_000
"""Characters of each tool result that are shown, in the block and in an answer alike."""
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


MOST_BYTES = 15_000
"""Bytes of an answer in UTF-8; tools are cut at 16 KiB."""
LEGIBLE_CHARS = 120
"""Shortest text of a cut message: its neighbours are left out before less of it is shown."""
LEAST_CHARS = 20
"""Shortest text of a message: messages are left out before less of them is shown."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A message in an answer."""

    offset: int
    """Messages of the session before it."""
    message: Message
    text: str
    more: Json
    """Further members."""
    before: tuple[str, ...] = ()
    """What was said before it, as it is shown, the nearest last."""
    after: tuple[str, ...] = ()
    """What was said after it, the nearest first."""


@dataclass(frozen=True, slots=True)
class Room:
    """How large an answer may be."""

    most_tokens: int
    count: Count
    most_bytes: int = MOST_BYTES

    def holds(self, text: str) -> bool:
        size = size_bytes(text)
        # No token is shorter than a byte, and counting takes far longer than measuring.
        return size <= self.most_bytes and (size <= self.most_tokens or self.count(text) <= self.most_tokens)


def text_of(message: Message) -> str:
    """All that a message says: its text, its calls, how their results begin."""
    chat = message.chat
    calls = [f"called {call_text(use.name, use.arguments)}" for use in chat.tool_uses]
    results = [f"result of {outcome.name}: {_cut(outcome.content, RESULT_CHARS)}" for outcome in chat.outcomes]
    return "\n".join([*filter(None, [chat.text.strip()]), *calls, *results])


def answer(name: str, entries: Sequence[Entry], rest: Json, room: Room) -> str:
    """Write messages under a name, with further members behind, as large as there is room for.

    Where they would be larger, first the longest texts are cut, all to the same length, and say how long they were;
    then neighbours are left out, one more on each side at a time; at last whole messages, the last
    ones first; their number is ``left_out``.
    """

    def written(kept: int, most_neighbours: int, most_chars: int) -> str:
        left_out = {"left_out": len(entries) - kept} if kept < len(entries) else {}
        if left_out and "next_offset" in rest:
            left_out["next_offset"] = entries[kept].offset
        shown = [_shown(entry, most_chars, most_neighbours) for entry in entries[:kept]]
        return compact({name: shown, **rest, **left_out})

    def chars(kept: int, most_neighbours: int) -> int:
        return longest(MOST_BYTES, lambda most: room.holds(written(kept, most_neighbours, most)))

    whole, widest = (
        len(entries),
        max((len(side) for entry in entries for side in (entry.before, entry.after)), default=0),
    )
    for most_neighbours in range(widest, 0, -1):
        if (most_chars := chars(whole, most_neighbours)) >= LEGIBLE_CHARS:
            return written(whole, most_neighbours, most_chars)
    kept = longest(whole, lambda number: room.holds(written(number, 0, LEAST_CHARS)))
    return written(max(kept, 1), 0, chars(max(kept, 1), 0))


def compact(value: Json) -> str:
    """JSON in its shortest form."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def size_bytes(text: str) -> int:
    """Bytes in UTF-8."""
    return len(text.encode("utf-8", "surrogatepass"))


def _shown(entry: Entry, most_chars: int, most_neighbours: int) -> Json:
    message = entry.message
    before = [_cut(text, most_chars) for text in entry.before[max(0, len(entry.before) - most_neighbours) :]]
    after = [_cut(text, most_chars) for text in entry.after[:most_neighbours]]
    return {
        "offset": entry.offset,
        "id": message.id,
        "role": message.chat.role,
        "date": moment_of(message),
        **entry.more,
        **({"before": before} if before else {}),
        "text": _cut(entry.text, most_chars),
        **({"after": after} if after else {}),
    }


def _cut(text: str, most_chars: int) -> str:
    return text if len(text) <= most_chars else f"{text[:most_chars]}… ({len(text)} characters)"
