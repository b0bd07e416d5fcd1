"""Plain text, Markdown, reStructuredText, CSV and JSON: the lines of the file as they are, by the standard library."""

import codecs
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import BinaryIO

from loom_worker.backends.documents.extract import (
    MAX_CHARS,
    MAX_TITLE_CHARS,
    Extract,
    Line,
    Outline,
    UnreadableDocument,
)

MAX_TEXT_BYTES = 4 * MAX_CHARS
"""Read of a text; no encoding takes more than four bytes for a character."""

_BOMS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_HASHES = re.compile(r" {0,3}(#{1,6})[ \t]+(.*?)[ \t]*#*$")
_FENCE = re.compile(r" {0,3}(```|~~~)")
_UNDERLINE = {"Markdown": re.compile(r"(=|-)\1{2,}\s*$"), "reStructuredText": re.compile(r"([^\w\s])\1{2,}\s*$")}


def read(file: BinaryIO, kind: str, _from_page: int) -> Extract:
    """The lines of a text; those of CSV stand under the names of the columns.

    Raises:
        Unreadable: it holds binary data.
    """
    lines = decode(file.read(MAX_TEXT_BYTES)).removesuffix("\n").split("\n")
    if kind == "CSV":
        return Extract(_under(lines[0][:MAX_TITLE_CHARS], lines))
    if kind not in _UNDERLINE:
        return Extract(map(Line, lines))
    found = list(_with_headings(lines, _UNDERLINE[kind], has_hashes=kind == "Markdown"))
    return Extract(iter(found), title=next((line.heading for line in found if line.heading), ""))


def decode(data: bytes, *, declared: str | None = None) -> str:
    """Text of bytes: by their byte order mark, as declared, as UTF-8, else as Windows-1252; at most MAX_CHARS + 1.

    Raises:
        Unreadable: it holds NUL, as no text does.
    """
    marked = next((name for mark, name in _BOMS.items() if data.startswith(mark)), None)
    text = _by(marked, data) or _by(_of_text(declared), data) or _by("utf-8", data) or data.decode("cp1252", "replace")
    if "\0" in text:
        raise UnreadableDocument("it holds binary data")
    return text[: MAX_CHARS + 1].replace("\r\n", "\n").replace("\r", "\n")


def _of_text(encoding: str | None) -> str | None:
    """None for codecs of bytes to bytes, such as zlib, and for those there are not."""
    try:
        b"a".decode(encoding or "utf-8")
    except (LookupError, UnicodeError):
        return None
    return encoding


def _by(encoding: str | None, data: bytes) -> str | None:
    """None if the bytes are not of this encoding; a character cut by MAX_TEXT_BYTES is left out."""
    if encoding is None:
        return None
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(data, final=len(data) < MAX_TEXT_BYTES)
        return text.encode("utf-8", "replace").decode()  # some encodings give lone surrogates
    except (LookupError, UnicodeError):
        return None


def _under(heading: str, lines: Iterable[str]) -> Iterator[Line]:
    return (Line(text, heading) for text in lines)


def _with_headings(lines: list[str], underline: re.Pattern[str], *, has_hashes: bool) -> Iterator[Line]:
    outline, path = Outline(), ""
    levels: dict[str, int] = {"=": 1, "-": 2} if has_hashes else {}
    fence = None
    for text, following in zip(lines, chain(lines[1:], [""]), strict=True):
        mark = _FENCE.match(text)
        if has_hashes and mark and fence in (None, mark[1]):
            fence = None if fence else mark[1]
        elif fence is None and has_hashes and (hashes := _HASHES.match(text)):
            path = outline.enter(len(hashes[1]), hashes[2])
        elif fence is None and (level := _level(text, underline.match(following), levels)):
            path = outline.enter(level, text)
        yield Line(text, path)


def _level(text: str, line: re.Match[str] | None, levels: dict[str, int]) -> int | None:
    """The level of a title over a line of punctuation; reStructuredText gives each mark the next level it meets."""
    is_title = line is not None and any(char.isalnum() for char in text) and len(text) <= MAX_TITLE_CHARS
    return levels.setdefault(line[1], len(levels) + 1) if line and is_title else None
