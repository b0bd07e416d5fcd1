"""Summaries as the harness knows them: how Loom asks for one, and how ours say what they are of. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from tests.chaos.marks import MARK
from tests.support.messages_rules import blocks

BEGINS = "You keep the memory of a long conversation"
"""The first words of the system text of every request for a summary."""
FILLER = "They spoke of thread and of warp and weft, over and under, back and again."
"""Makes a summary as long as summaries are."""
NOTES = re.compile(r"<notes>\n(.*)\n</notes>", re.DOTALL)
"""All notes so far, where a digest of them is asked for."""
NOTE = re.compile(r"\bNote-(\d+) speaks of ((?:T\d{5,}(?:, )?)+)\.")
"""A summary of ours: the number of the request it answers, and the marks of the turns it is of."""


@dataclass(frozen=True)
class Part:
    """What a summary is asked of."""

    is_digest: bool
    marks: tuple[str, ...]
    """Of the turns in it, in the order of the conversation; a digest's are those that the notes name."""
    key: str
    """Equal for two requests for a summary of the same thing, though the part may have grown meanwhile."""


@dataclass(frozen=True)
class Note:
    """A summary of ours, found in a text."""

    number: int
    marks: tuple[str, ...]


def is_summary(body: Mapping[str, Any]) -> bool:
    """True of a request for a summary, not for a turn's reply."""
    return any(block["text"].startswith(BEGINS) for block in blocks(body.get("system", []))[:1])


def part_of(body: Mapping[str, Any]) -> Part:
    """What a request for a summary is about."""
    text = "\n".join(block["text"] for message in body["messages"] for block in blocks(message["content"]))
    marks = marks_in(text)
    if found := NOTES.search(text):
        return Part(True, marks, f"digest {sha256(found[1].encode()).hexdigest()[:12]}")
    return Part(False, marks, f"part {marks[0] if marks else sha256(text.encode()).hexdigest()[:12]}")


def said(part: Part, number: int) -> str:
    """Our summary in answer to the request with this number."""
    if part.is_digest:
        return f"Digest-{number} replaces all notes up to {part.marks[-1] if part.marks else 'here'}."
    return f"Note-{number} speaks of {', '.join(part.marks)}. {FILLER}" if part.marks else f"Of nothing. {FILLER}"


def notes_in(text: str) -> tuple[Note, ...]:
    """Our summaries in a text, in its order."""
    return tuple(Note(int(number), marks_in(marks)) for number, marks in NOTE.findall(text))


def marks_in(text: str) -> tuple[str, ...]:
    """All marks in a text, each once, in its order."""
    return tuple(dict.fromkeys(MARK.findall(text)))
