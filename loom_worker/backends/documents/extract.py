"""Which files are documents, and what every reader of a format gives: lines, cut into passages to search in."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import PurePosixPath
from typing import BinaryIO, NamedTuple

from loom_worker.core.errors import LoomError

MAX_CHARS = 5_000_000
"""Characters kept of one document."""
PASSAGE_CHARS = 1200
"""Longest passage: some 300 tokens, what a person would read around a hit."""
ENOUGH_CHARS = 600
"""A passage this long ends at the next empty line."""
MAX_TITLE_CHARS = 200

_SUFFIXES = {
    "text": ".txt .text .log",
    "Markdown": ".md .markdown",
    "reStructuredText": ".rst",
    "HTML": ".html .htm .xhtml",
    "CSV": ".csv .tsv",
    "JSON": ".json .jsonl .ndjson",
    "PDF": ".pdf",
    "Word": ".docx",
}
KINDS = {"": "text"} | {suffix: kind for kind, suffixes in _SUFFIXES.items() for suffix in suffixes.split()}

ARCHIVES = frozenset(".zip .tar .gz .tgz .bz2 .tbz2 .xz .txz .zst .7z .rar .jar .war .whl .epub .iso .cab .lz4".split())
_ARCHIVE_MARKS = (
    b"PK\x03\x04",
    b"PK\x05\x06",
    b"\x1f\x8b",
    b"BZh",
    b"\xfd7zXZ\x00",
    b"(\xb5/\xfd",
    b"7z\xbc\xaf",
    b"Rar!",
)

_MODULES = {"PDF": "pdf", "Word": "docx"}
"""The others are read by ``text``."""


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
    encoding: str = ""
    """``guessed cp932`` or ``unknown``; empty where nothing had to be guessed."""


def kind_of(name: str) -> str:
    """The kind of document a name promises.

    Raises:
        UnreadableDocument: files with this suffix are not read.
    """
    suffix = PurePosixPath(name).suffix.lower()
    if suffix in ARCHIVES:
        raise UnreadableDocument(f"an archive ({suffix}): archives are not opened")
    if suffix not in KINDS:
        raise UnreadableDocument(f"files of its kind ({suffix[:20]}) are not read")
    return KINDS[suffix]


def extract(file: BinaryIO, kind: str, *, from_page: int = 1) -> Extract:
    """Begin to read an open file; its lines come as they are asked for.

    Args:
        from_page: where to go on in a PDF; other kinds are always read from their beginning.

    Raises:
        UnreadableDocument: it is not what it seems, or cannot be read; the lines may raise it too.
    """
    head = file.read(8)
    file.seek(0)
    if kind != "Word" and head.startswith(_ARCHIVE_MARKS):
        raise UnreadableDocument("an archive by its first bytes: archives are not opened")
    module = import_module(f"loom_worker.backends.documents.{_MODULES.get(kind, 'text')}")
    read: Callable[..., Extract] = module.read
    return read(file, kind, from_page)


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
        is_end = size >= ENOUGH_CHARS and not held[-1].text.strip()
        if held and (line[1:] != held[0][1:] or size + len(line.text) >= PASSAGE_CHARS or is_end):
            yield _passage(held, last=number - 1)
            held, size = [], 0
        if len(line.text) > PASSAGE_CHARS:
            yield from _parts(line, number)
            continue
        held.append(line)
        size += len(line.text) + 1
    if held:
        yield _passage(held, last=number)


def _passage(held: list[Line], *, last: int) -> Passage:
    body = "\n".join(line.text for line in held)
    return Passage(held[0].page, last - len(held) + 1, last, 0, held[0].heading, body)


def _parts(line: Line, number: int) -> Iterator[Passage]:
    for skip in range(0, len(line.text), PASSAGE_CHARS):
        part = line.text[skip : skip + PASSAGE_CHARS]
        yield Passage(line.page, number, number, skip, line.heading, part)
