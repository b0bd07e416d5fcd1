"""Messages as a tool answers them: JSON that is never cut, however long they are. Pure."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from loom_worker.memory.layers import longest
from loom_worker.memory.recalled import moment_of
from loom_worker.memory.results import call_text
from loom_worker.values.json import Json
from loom_worker.values.sessions import Message

MOST_BYTES = 15_000
"""Of an answer in UTF-8; tools are cut at 16 KiB."""
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


def text_of(message: Message) -> str:
    """All that a message says: its text, its calls, how their results begin."""
    chat = message.chat
    calls = [f"called {call_text(use.name, use.arguments)}" for use in chat.tool_uses]
    results = [f"result of {outcome.name}: {_cut(outcome.content, RESULT_CHARS)}" for outcome in chat.outcomes]
    return "\n".join([*filter(None, [chat.text.strip()]), *calls, *results])


def answer(name: str, entries: Sequence[Entry], rest: Json) -> str:
    """Write messages under a name, with further members behind; at most MOST_BYTES.

    Where they would be more, the longest texts are cut, all to the same length; what was cut says how long it was.
    """

    def written(most_chars: int) -> str:
        return compact({name: [_shown(entry, most_chars) for entry in entries], **rest})

    return written(longest(MOST_BYTES, lambda chars: size_bytes(written(chars)) <= MOST_BYTES))


def compact(value: Json) -> str:
    """JSON in its shortest form."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def size_bytes(text: str) -> int:
    """Bytes in UTF-8."""
    return len(text.encode("utf-8", "surrogatepass"))


def _shown(entry: Entry, most_chars: int) -> Json:
    message = entry.message
    return {
        "offset": entry.offset,
        "id": message.id,
        "role": message.chat.role,
        "date": moment_of(message),
        **entry.more,
        "text": _cut(entry.text, most_chars),
    }


def _cut(text: str, most_chars: int) -> str:
    return text if len(text) <= most_chars else f"{text[:most_chars]}… ({len(text)} characters)"
