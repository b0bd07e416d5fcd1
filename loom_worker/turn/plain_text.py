"""Markdown as plain text, for channels that show nothing else."""

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

_BULLET = "- "
_QUOTE = "> "
_RULE = "———"


@cache
def _parser() -> "MarkdownIt":
    # Imported with the first answer that needs it: 90 ms that other processes never spend.
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark").enable(["table", "strikethrough"])


def plain(markdown: str) -> str:
    """The text of an answer without the marks of Markdown.

    Lists keep their bullets and numbers, quotations ``>``, code its lines, and links their addresses in brackets.
    """
    writer = _Writer()
    for token in _parser().parse(markdown):
        writer.take(token)
    return "\n".join(line.rstrip() for line in writer.lines).strip("\n")


class _Writer:
    """Writes block by block, each with the marks of the lists and quotations that it stands in."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._prefixes: list[str] = []
        self._numbers: list[int | None] = []
        """Number of the next item of each open list; None: of bullets."""
        self._mark = ""
        """Mark of the item that begins, until its first line is written."""
        self._cells: list[str] = []

    def take(self, token: "Token") -> None:
        kind = token.type
        if kind in ("bullet_list_open", "ordered_list_open"):
            start = token.attrGet("start")
            self._numbers.append(None if kind == "bullet_list_open" else int(1 if start is None else start))
        elif kind in ("bullet_list_close", "ordered_list_close"):
            self._numbers.pop()
            self._blank(token.level)
        elif kind == "list_item_open":
            self._begin_item()
        elif kind == "blockquote_open":
            self._prefixes.append(_QUOTE)
        elif kind == "list_item_close":
            self._prefixes.pop()
            self._mark = ""
        elif kind == "blockquote_close":
            self._end_quotation(token.level)
        elif kind in ("td_open", "th_open", "tr_open"):
            self._cells = [] if kind == "tr_open" else [*self._cells, ""]
        elif kind == "tr_close":
            self._write(" | ".join(self._cells))
        elif kind in ("paragraph_close", "heading_close", "table_close"):
            self._blank(1 if token.hidden else 0)
        else:
            self._text(token)

    def _begin_item(self) -> None:
        number = self._numbers[-1]
        mark = _BULLET if number is None else f"{number}. "
        self._numbers[-1] = None if number is None else number + 1
        self._mark = "".join(self._prefixes) + mark
        self._prefixes.append(" " * len(mark))

    def _end_quotation(self, level: int) -> None:
        self._prefixes.pop()
        while self.lines and set(self.lines[-1]) <= set(_QUOTE):
            self.lines.pop()
        self._blank(level)

    def _text(self, token: "Token") -> None:
        if token.type == "inline":
            text = inline(token.children or ())
            if self._cells:
                self._cells[-1] = text
            else:
                self._write(text)
        elif token.type in ("fence", "code_block", "html_block"):
            self._write(token.content.rstrip("\n"))
            self._blank(0)
        elif token.type == "hr":
            self._write(_RULE)
            self._blank(0)

    def _write(self, text: str) -> None:
        for line in text.split("\n"):
            self.lines.append((self._mark or "".join(self._prefixes)) + line)
            self._mark = ""
        self._cells = []

    def _blank(self, level: int) -> None:
        """An empty line between blocks, but none within a list whose items follow each other closely."""
        if level == 0 and self.lines and self.lines[-1].strip():
            self.lines.append("".join(self._prefixes))


def inline(tokens: "Sequence[Token]") -> str:
    """The text of a line: emphasis is left out, a link is followed by its address unless that is its text."""
    parts: list[str] = []
    links: list[tuple[int, str]] = []
    for token in tokens:
        if token.type == "link_open":
            links.append((len(parts), str(token.attrGet("href") or "")))
        elif token.type == "link_close":
            begin, href = links.pop()
            parts.append(_address("".join(parts[begin:]), href))
        elif token.type == "image":
            alt = inline(token.children or ())
            parts += [alt, _address(alt, str(token.attrGet("src") or ""))]
        elif token.type in ("softbreak", "hardbreak"):
            parts.append("\n")
        else:
            parts.append(token.content)
    return "".join(parts)


def _address(text: str, url: str) -> str:
    return "" if not url or url in (text, f"mailto:{text}") else f" ({url})"
