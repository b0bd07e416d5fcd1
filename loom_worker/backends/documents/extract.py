"""What every reader of a format gives: lines with their page and heading, cut into passages to search in."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from loom_worker.core.errors import LoomError

MAX_CHARS = 5_000_000
"""Characters kept of one document."""
PASSAGE_CHARS = 1200
"""Longest passage: some 300 tokens, what a person would read around a hit."""
ENOUGH_CHARS = 600
"""A passage this long ends at the next empty line."""
MAX_TITLE_CHARS = 200


class UnreadableDocument(LoomError):
    """A file that is not read; the text says why, for the model and the user."""


class Line(NamedTuple):
    """One line of a document."""

    text: str
    heading: str = ""
    """The headings it stands under, outermost first; of a table, the names of its columns."""
    page: int | None = None
    """From 1; None where the format knows no pages."""


@dataclass(slots=True)
class Extract:
    """A document being read; ``title`` may be known only after the last line."""

    lines: Iterator[Line | None]
    """None: no line yet, still reading; so that a time limit can be heeded."""
    title: str = ""
    pages: int | None = None
    """How many there are in all."""


class Passage(NamedTuple):
    """Some lines in a row, or a part of one long line; all passages in a row are the document."""

    page: int | None
    first: int
    """Number of its first line, from 1."""
    last: int
    skip: int
    """Characters of the first line that stand in passages before this one."""
    heading: str
    body: str


class Outline:
    """The headings a line stands under."""

    def __init__(self) -> None:
        self._open: list[tuple[int, str]] = []

    def enter(self, level: int, text: str) -> str:
        """Begin a section of this level (1 is the outermost) and return the path to it."""
        self._open = [(other, name) for other, name in self._open if other < level]
        self._open.append((level, " ".join(text.split())[:MAX_TITLE_CHARS]))
        return " > ".join(name for _, name in self._open)


def passages(lines: Iterator[Line], *, first: int) -> Iterator[Passage]:
    """Cut lines into passages of at most PASSAGE_CHARS; none crosses a page or a heading.

    Args:
        first: the number of the first line.
    """
    held: list[Line] = []
    size = 0
    number = first - 1
    for number, line in enumerate(lines, first):
        if held and (line[1:] != held[0][1:] or size + len(line.text) >= PASSAGE_CHARS or _is_end(held, size)):
            yield _passage(held, last=number - 1)
            held, size = [], 0
        if len(line.text) > PASSAGE_CHARS:
            yield from _parts(line, number)
            continue
        held.append(line)
        size += len(line.text) + 1
    if held:
        yield _passage(held, last=number)


def _is_end(held: list[Line], size: int) -> bool:
    return size >= ENOUGH_CHARS and not held[-1].text.strip()


def _passage(held: list[Line], *, last: int) -> Passage:
    body = "\n".join(line.text for line in held)
    return Passage(held[0].page, last - len(held) + 1, last, 0, held[0].heading, body)


def _parts(line: Line, number: int) -> Iterator[Passage]:
    for skip in range(0, len(line.text), PASSAGE_CHARS):
        part = line.text[skip : skip + PASSAGE_CHARS]
        yield Passage(line.page, number, number, skip, line.heading, part)
