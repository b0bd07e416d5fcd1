"""HTML as text with its headings, by the standard library's parser.

It builds no tree, so depth costs nothing; it runs no script and fetches nothing. What it reads is what a browser
would show, and text that is hidden by style.
"""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import BinaryIO

from loom_worker.backends.documents.extract import MAX_TITLE_CHARS, Extract, Line, Outline
from loom_worker.backends.documents.text import MAX_TEXT_BYTES, decode

CHUNK_CHARS = 64 * 1024
"""Fed to the parser at a time, so that the reader's time limit is heeded in between."""

_CHARSET = re.compile(rb"""(?i)<(?:meta\b|\?xml)[^<>]{0,200}?(?:charset|encoding)\s*=\s*["']?([\w.:-]{1,40})""")
_COMMENT = re.compile(rb"<!--.*?(?:-->|\Z)", re.DOTALL)
_BLOCKS = frozenset(
    """address article aside blockquote body br caption center dd details dialog div dl dt fieldset figcaption figure
    footer form h1 h2 h3 h4 h5 h6 head header hr html legend li main menu nav ol option p pre section summary table
    tbody tfoot thead tr ul""".split()
)
_SILENT = frozenset({"script", "style", "template", "svg"})
_LEVELS = {f"h{level}": level for level in range(1, 7)}


def read(file: BinaryIO, _kind: str, _from_page: int) -> Extract:
    """A line for each block of the page.

    Raises:
        Unreadable: it holds binary data.
    """
    data = file.read(MAX_TEXT_BYTES)
    declared = _CHARSET.search(_COMMENT.sub(b"", data))
    text, encoding = decode(data, declared=declared[1].decode("ascii") if declared else None)
    extract = Extract(iter(()), encoding=encoding)
    extract.lines = _lines(text, extract)
    return extract


def _lines(text: str, extract: Extract) -> Iterator[Line | None]:
    page = _Page()
    for at in range(0, len(text), CHUNK_CHARS):
        page.feed(text[at : at + CHUNK_CHARS])
        extract.title = page.title[:MAX_TITLE_CHARS]
        yield from page.taken()
        yield None
    page.close()
    yield from page.taken(is_end=True)


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.title = ""
        self._lines: list[Line] = []
        self._text: list[str] = []
        self._outline = Outline()
        self._path = ""
        self._silent: list[str] = []
        self._within: str | None = None
        """The title or heading that is open."""
        self._is_pre = False

    def taken(self, *, is_end: bool = False) -> list[Line]:
        """The lines that are complete, and the last one at the end."""
        if is_end:
            self._break()
        lines, self._lines = self._lines, []
        return lines

    def parse_marked_section(self, i: int, report: bool = True) -> int:
        """``<![…>`` is a comment in HTML; the parser of Python 3.11 raises AssertionError over some."""
        return self.parse_bogus_comment(i, report)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _SILENT:
            self._silent.append(tag)
        if tag in _BLOCKS:
            self._break()
        if tag == "title" or tag in _LEVELS:
            self._break()
            self._within = tag
        elif tag in ("td", "th") and self._text:
            self._text.append(" | ")
        elif tag == "li":
            self._text.append("- ")
        self._is_pre = tag == "pre" or self._is_pre

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _SILENT:  # <svg/> has no end that would let the text go on
            self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        if self._silent and tag == self._silent[-1]:
            self._silent.pop()
        if tag in _BLOCKS or tag == self._within:
            self._break()
        if tag == self._within:
            self._within = None
        if tag == "pre":
            self._is_pre = False

    def handle_data(self, data: str) -> None:
        if self._silent:
            return
        first, *others = data.split("\n") if self._is_pre else [data]
        self._text.append(first)
        for text in others:
            self._break()
            self._text.append(text)

    def _break(self) -> None:
        """End the line; that of a heading begins a section, that of the title is none."""
        raw, self._text = "".join(self._text), []
        text = raw.rstrip() if self._is_pre else " ".join(raw.split())
        if not text.strip():
            return
        if self._within == "title":
            self.title = self.title or text
            return
        if self._within:
            self._path = self._outline.enter(_LEVELS[self._within], text)
        self._lines.append(Line(text, self._path))
