"""Messages as a tool answers them: JSON that is never cut, however long they are. Pure."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from loom_worker.core.values.json import Json
from loom_worker.core.values.sessions import Message
from loom_worker.memory.layers import Count, longest
from loom_worker.memory.recalled import moment_of
from loom_worker.memory.results import call_text

MOST_BYTES = 15_000
"""Of an answer in UTF-8; tools are cut at 16 KiB."""
LEGIBLE_CHARS = 120
"""Of each text that is cut: what stands beside a message is left out before less of it is shown."""
LEAST_CHARS = 20
"""Of each text: messages are left out before less of them is shown."""
RESULT_CHARS = 1_000
"""Of each tool result in a message; as much as of it will stand in the context."""


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
        """True if there is room for an answer."""
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
    then what stands beside messages is left out, one more on each side at a time; at last whole messages, the last
    ones first, whose number is told as ``left_out``.
    """

    def written(kept: int, most_beside: int, most_chars: int) -> str:
        left_out = {"left_out": len(entries) - kept} if kept < len(entries) else {}
        if left_out and "next_offset" in rest:
            left_out["next_offset"] = entries[kept].offset
        shown = [_shown(entry, most_chars, most_beside) for entry in entries[:kept]]
        return compact({name: shown, **rest, **left_out})

    def chars(kept: int, most_beside: int) -> int:
        return longest(MOST_BYTES, lambda most: room.holds(written(kept, most_beside, most)))

    whole, widest = (
        len(entries),
        max((len(side) for entry in entries for side in (entry.before, entry.after)), default=0),
    )
    for most_beside in range(widest, 0, -1):
        if (most_chars := chars(whole, most_beside)) >= LEGIBLE_CHARS:
            return written(whole, most_beside, most_chars)
    kept = longest(whole, lambda number: room.holds(written(number, 0, LEAST_CHARS)))
    return written(max(kept, 1), 0, chars(max(kept, 1), 0))


def compact(value: Json) -> str:
    """JSON in its shortest form."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def size_bytes(text: str) -> int:
    """Bytes in UTF-8."""
    return len(text.encode("utf-8", "surrogatepass"))


def _shown(entry: Entry, most_chars: int, most_beside: int) -> Json:
    message = entry.message
    before = [_cut(text, most_chars) for text in entry.before[max(0, len(entry.before) - most_beside) :]]
    after = [_cut(text, most_chars) for text in entry.after[:most_beside]]
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
