"""Lines of a document as text with their numbers, as much as fits one result. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from loom_worker.backends.documents.extract import Passage

MAX_BYTES = 12 * 1024
"""Of the text in UTF-8, what stands before and after it included: below the 16 KiB at which a result is kept aside."""
_RESERVED_BYTES = 512
"""For what stands before and after the lines."""


@dataclass(frozen=True, slots=True)
class Numbered:
    """A line, or the rest of one, with its number and page."""

    number: int
    page: int | None
    skip: int
    text: str


@dataclass(frozen=True, slots=True)
class Shown:
    """What fits."""

    text: str
    next_line: int | None
    """Where to go on; None: all is shown."""
    next_skip: int = 0
    """Characters of that line which are shown already."""


def numbered(passages: Iterable[Passage], *, first: int, last: int | None, skip: int) -> Iterator[Numbered]:
    """The lines ``first`` to ``last`` (None: all that follow), without the first ``skip`` characters of the first."""
    for number, parts in groupby(_lines(passages), key=lambda line: line.number):
        if last is not None and number > last:
            return
        whole = list(parts)
        if number >= first:
            text = "".join(part.text for part in whole)
            at = skip if number == first else 0
            yield Numbered(number, whole[0].page, at, text[at:])


def printed(lines: Iterable[Numbered]) -> Shown:
    """Lines with their numbers, and a mark where a page begins; a line that does not fit at all is shown in part."""
    room = MAX_BYTES - _RESERVED_BYTES
    shown: list[str] = []
    page = None
    for line in lines:
        mark = f"--- page {line.page} ---\n" if line.page != page else ""
        page = line.page
        lead = f"{mark}{line.number}\t"
        if shown and len((lead + line.text).encode()) >= room:
            return Shown("\n".join(shown), line.number, line.skip)
        fitting = line.text.encode()[: room - len(lead.encode()) - 1].decode("utf-8", "ignore")
        shown.append(lead + fitting)
        if len(fitting) < len(line.text):
            return Shown("\n".join(shown), line.number, line.skip + len(fitting))
        room -= len(shown[-1].encode()) + 1
    return Shown("\n".join(shown), None)


def _lines(passages: Iterable[Passage]) -> Iterator[Numbered]:
    for passage in passages:
        for number, text in enumerate(passage.body.split("\n"), passage.first):
            yield Numbered(number, passage.page, passage.skip, text)
