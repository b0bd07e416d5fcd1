"""What a turn's channel asks for: a hint to the model, and an answer in messages that the channel can show."""

import re
import unicodedata

from loom_worker.core.values.channels import Channel
from loom_worker.turn.plain_text import plain

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})([^\n]*)")
_JOINERS = "\u200d\ufe0e\ufe0f"
"""Zero-width joiner and variation selectors: what they stand beside is one sign."""


def hint(channel: Channel) -> str:
    """What the model is told beside the message."""
    text = f"The answer is read in the channel {channel.name!r}"
    text += ", which shows Markdown." if channel.format == "markdown" else ", as plain text: write no Markdown."
    if channel.max_chars is not None:
        text += f" A message there has at most {channel.max_chars} characters; a longer answer is split."
    return text


def parts_of(answer: str, channel: Channel) -> tuple[str, ...]:
    """The answer as messages to be sent one after another; none for one without visible text."""
    text = (plain(answer) if channel.format == "plain" else answer).strip("\n")
    if not text.strip():
        return ()
    if channel.max_chars is None:
        return (text,)
    return split(text, channel.max_chars, is_markdown=channel.format == "markdown")


def split(text: str, most_chars: int, *, is_markdown: bool = False) -> tuple[str, ...]:
    """Cut a text into pieces: at an empty line if there is one late enough, else at a line, a word, a character.

    A block of code that is cut is closed, and opened again in the next piece.
    """
    parts: list[str] = []
    opened = ""
    while text.strip():
        if len(opened) + len(text) <= most_chars:
            parts.append(opened + text)
            break
        closing = _closing_chars(opened + text, most_chars) if is_markdown else 0
        cut = _cut(text, max(most_chars - len(opened) - closing, 1))
        piece, text = opened + text[:cut].rstrip(), _after(text, cut)
        opened = _open_fence(piece, most_chars) if is_markdown else ""
        if piece.strip():
            parts.append(f"{piece}\n{_mark(opened)}" if opened else piece)
    return tuple(parts)


def _mark(line: str) -> str:
    """The row of fence characters at the beginning of a line; empty: there is none."""
    found = _FENCE.match(line)
    return found[1] if found else ""


def _closing_chars(text: str, most_chars: int) -> int:
    """What closing a block of code can take, with its line break."""
    marks = [len(_mark(line)) for line in text.split("\n") if _is_worth_it(line, most_chars)]
    return max(marks, default=-1) + 1


def _is_worth_it(line: str, most_chars: int) -> bool:
    """False for a fence that would fill the next piece if it was opened there again."""
    return 3 * len(line) < most_chars


def _cut(text: str, room: int) -> int:
    for border, least in (("\n\n", room // 3), ("\n", room // 3), (" ", 1)):
        at = text.rfind(border, least, room + 1)
        if at > 0 and text[:at].strip():
            return at
    at = room
    while at > 1 and _belongs_to_the_one_before(text, at):
        at -= 1
    return at if at > 1 or room == 1 else room


def _belongs_to_the_one_before(text: str, at: int) -> bool:
    return unicodedata.combining(text[at]) > 0 or text[at] in _JOINERS or text[at - 1] == _JOINERS[0]


def _after(text: str, cut: int) -> str:
    """What follows a cut, without the border; code keeps its indentation."""
    rest = text[cut:]
    return rest.lstrip("\n") if rest.startswith("\n") else rest.removeprefix(" ")


def _open_fence(piece: str, most_chars: int) -> str:
    """The line that opens the block of code in which a piece ends; empty: it ends in none."""
    opened = ""
    for line in piece.split("\n"):
        found = _FENCE.match(line)
        if not found:
            continue
        mark, info = found[1], found[2]
        if not opened and not (mark[0] == "`" and "`" in info):
            opened = line
        elif opened and _closes(mark, info, _mark(opened)):
            opened = ""
    return f"{opened}\n" if opened and _is_worth_it(opened, most_chars) else ""


def _closes(mark: str, info: str, opening: str) -> bool:
    return mark[0] == opening[0] and len(mark) >= len(opening) and not info.strip()
