"""Summaries as the harness knows them: how Loom asks for one, and how ours say what they are of. Pure."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from tests.chaos.marks import MARK
from tests.support.messages_rules import blocks

BEGINS = "You keep the memory of a long conversation"
"""The first words of the system text of a request for a summary that stays in the context."""
DATED_BEGINS = "You keep the long-term memory of an assistant"
"""The same of a request for a summary by date and for facts."""
FILLER = "They spoke of thread and of warp and weft, over and under, back and again."
"""Makes a summary as long as summaries are."""
NOTES = re.compile(r"<notes>\n(.*)\n</notes>", re.DOTALL)
"""All notes so far, where a digest of them is asked for."""
NOTE = re.compile(r"\bNote-(\d+) speaks of ((?:T\d{5,}(?:, )?)+)\.")
"""A summary of ours: the number of the request it answers, and the marks of the turns it is of."""
DATED = re.compile(r"\bDated-(\d+) speaks of ((?:T\d{5,}(?:, )?)*)\.")
"""The same of a summary by date; the answer has one fact for each of these marks."""
MENTIONED = "mentioned"
"""The relation of our facts; the object is a mark."""
_MESSAGE = re.compile(r"^\[(\d+), \d{4}-\d\d-\d\d\] (user|assistant): ", re.MULTILINE)
"""Where a message begins of which a summary by date is asked."""


@dataclass(frozen=True)
class Part:
    """What a summary is asked of."""

    is_digest: bool
    marks: tuple[str, ...]
    """Of the turns in it, in the order of the conversation; a digest's are those that the notes name."""
    key: str
    """Equal for two requests for a summary of the same thing, though the part may have grown meanwhile."""
    said_in: Mapping[str, int] | None = None
    """By mark the number of the first message that has it, where a summary by date is asked for."""


@dataclass(frozen=True)
class Note:
    """A summary of ours, found in a text."""

    number: int
    marks: tuple[str, ...]


def is_summary(body: Mapping[str, Any]) -> bool:
    """True of a request for a summary, not for a turn's reply."""
    return any(block["text"].startswith((BEGINS, DATED_BEGINS)) for block in blocks(body.get("system", []))[:1])


def part_of(body: Mapping[str, Any]) -> Part:
    """What a request for a summary is about."""
    text = "\n".join(block["text"] for message in body["messages"] for block in blocks(message["content"]))
    marks = marks_in(text)
    if blocks(body["system"])[0]["text"].startswith(DATED_BEGINS):
        said_in = dict(_said_in(text))
        return Part(
            False, tuple(said_in), f"dated {next(iter(said_in), sha256(text.encode()).hexdigest()[:12])}", said_in
        )
    if found := NOTES.search(text):
        return Part(True, marks, f"digest {sha256(found[1].encode()).hexdigest()[:12]}")
    return Part(False, marks, f"part {marks[0] if marks else sha256(text.encode()).hexdigest()[:12]}")


def said(part: Part, number: int) -> str:
    """Our summary in answer to the request with this number."""
    if part.said_in is not None:
        facts = [
            {"subject": "user", "relation": MENTIONED, "object": mark, "message": at, "confidence": 0.9, "many": True}
            for mark, at in part.said_in.items()
        ]
        summary = f"Dated-{number} speaks of {', '.join(part.said_in)}. {FILLER}"
        return json.dumps({"summary": summary, "facts": facts, "ended": []})
    if part.is_digest:
        return f"Digest-{number} replaces all notes up to {part.marks[-1] if part.marks else 'here'}."
    return f"Note-{number} speaks of {', '.join(part.marks)}. {FILLER}" if part.marks else f"Of nothing. {FILLER}"


def notes_in(text: str) -> tuple[Note, ...]:
    """Our summaries in a text, in its order."""
    return tuple(Note(int(number), marks_in(marks)) for number, marks in NOTE.findall(text))


def marks_in(text: str) -> tuple[str, ...]:
    """All marks in a text, each once, in its order."""
    return tuple(dict.fromkeys(MARK.findall(text)))


def _said_in(text: str) -> Iterator[tuple[str, int]]:
    """Each mark with the number of the first message that has it."""
    begins = [*_MESSAGE.finditer(text)]
    seen: set[str] = set()
    for at, begin in enumerate(begins):
        end = begins[at + 1].start() if at + 1 < len(begins) else len(text)
        for mark in marks_in(text[begin.end() : end]):
            if mark not in seen:
                seen.add(mark)
                yield mark, int(begin[1])
