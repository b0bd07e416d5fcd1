"""What the index is asked: names, passages that fit a question, lines of one document, as much as fits one result."""

import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import groupby

from loom_worker.backends.documents.extract import Passage
from loom_worker.core.sqlite_driver import sqlite3
from loom_worker.core.text import one_line
from loom_worker.core.values.json import Json
from loom_worker.core.words import COMPOUND, RUN, STOP_WORDS, UNSPACED, WORD

SNIPPET_TOKENS = 40
MAX_SNIPPET_CHARS = 500
MOST_NEAR = 3
MAX_BYTES = 12 * 1024
"""Size of the text in UTF-8 with what stands around it: below the 16 KiB at which a result is kept aside."""
_RESERVED_BYTES = 512
"""For what stands before and after the lines."""
_WEIGHTS = "2.0, 3.0, 1.0, 1.0"
"""Weights of a hit in the name, the headings, the text and its pairs of characters."""

_BEGINS = "substr(name, 1, length(:prefix)) = :prefix"
_LIST = f"""
SELECT name, kind, size_bytes, flaw, is_waiting, next_page, title, pages, encoding, lines, cut FROM files
WHERE {_BEGINS} ORDER BY name LIMIT :limit OFFSET :offset
"""
_HITS = f"""
SELECT found.rowid AS id, bm25(found, {_WEIGHTS}) AS score
FROM found JOIN passages ON passages.id = found.rowid
WHERE found MATCH :words AND {_BEGINS.replace("name", "passages.name")} ORDER BY score, found.rowid LIMIT :limit
"""
_HIT = f"""
SELECT p.name, p.page, p.first, p.last, p.skip, p.heading, f.encoding,
    snippet(found, 2, '', '', '…', {SNIPPET_TOKENS}) AS snippet
FROM found JOIN passages AS p ON p.id = found.rowid JOIN files AS f ON f.id = p.file_id
WHERE found MATCH ? AND found.rowid = ?
"""


@dataclass(frozen=True, slots=True)
class IndexedFile:
    """A file as the index knows it."""

    id: int
    name: str
    kind: str
    flaw: str
    is_waiting: bool
    title: str
    pages: int | None
    encoding: str
    lines: int
    cut: str


@dataclass(frozen=True, slots=True)
class Counts:
    """How many files there are, and how far the index is with them."""

    total: int
    waiting: int
    """Not read yet, or not to their end."""
    unreadable: int

    @property
    def note(self) -> str:
        """For the model, while the index is not complete; else empty."""
        if not self.waiting:
            return ""
        done = self.total - self.waiting
        return f"{done} of {self.total} files indexed so far; the next call goes on"


def counts(connection: sqlite3.Connection, prefix: str = "") -> Counts:
    """What the files hold whose names begin so."""
    sums = f"SELECT count(*), total(is_waiting), total(flaw != '') FROM files WHERE {_BEGINS}"
    total, waiting, unreadable = connection.execute(sums, {"prefix": plain(prefix)}).fetchone()
    return Counts(total, int(waiting), int(unreadable))


def listed(connection: sqlite3.Connection, *, prefix: str, limit: int, offset: int) -> list[Json]:
    """Documents by name, as JSON; an unreadable one with the reason."""
    rows = connection.execute(_LIST, {"prefix": plain(prefix), "limit": limit, "offset": offset})
    return [_shown(row) for row in rows]


def search(connection: sqlite3.Connection, query: str, *, prefix: str, limit: int) -> list[Json]:
    """Passages, the best first (BM25, higher scores are better); none if the query holds no word."""
    words = expression(query)
    if words is None:
        return []
    hits = connection.execute(_HITS, {"words": words, "prefix": plain(prefix), "limit": limit}).fetchall()
    return [_hit(connection.execute(_HIT, (words, hit["id"])).fetchone(), score=-hit["score"]) for hit in hits]


def find(connection: sqlite3.Connection, name: str) -> IndexedFile | None:
    """The file of exactly this name, else the only one whose name looks the same, or is shown so."""
    columns = "id, name, kind, flaw, is_waiting, title, pages, encoding, lines, cut"
    row = connection.execute(f"SELECT {columns} FROM files WHERE name = ?", (plain(name),)).fetchone()
    if row is None:
        looks = _looks(name)
        same = [other for other in _names(connection) if _looks(other) == looks or one_line(other) == name]
        if len(same) != 1:
            return None
        row = connection.execute(f"SELECT {columns} FROM files WHERE name = ?", same).fetchone()
    return IndexedFile(*row) if row else None


def near(connection: sqlite3.Connection, name: str) -> list[str]:
    """Names that may have been meant, the likeliest first: those of the same last part, else similar ones."""
    names = _names(connection)
    last = _last(name)
    same = [other for other in names if _last(other) == last][:MOST_NEAR]
    return same or get_close_matches(plain(name), names, MOST_NEAR)


def passages(connection: sqlite3.Connection, document: IndexedFile, *, first: int) -> Iterator[Passage]:
    """The passages of a document from the one that holds this line on."""
    columns = "page, first, last, skip, heading, body"
    ordered = f"SELECT {columns} FROM passages WHERE file_id = ? AND last >= ? ORDER BY last, skip"
    return (Passage(*row) for row in connection.execute(ordered, (document.id, first)))


def lines_of_page(connection: sqlite3.Connection, document: IndexedFile, page: int) -> tuple[int, int] | None:
    """The first and the last line of a page; None if it is not there, or not read yet."""
    ends = "SELECT min(first), max(last) FROM passages WHERE file_id = ? AND page = ?"
    first, last = connection.execute(ends, (document.id, page)).fetchone()
    return None if first is None else (first, last)


def plain(text: str) -> str:
    """Text that SQLite takes: lone surrogates become question marks, which no name is found by."""
    return text.encode("utf-8", "replace").decode()


def _names(connection: sqlite3.Connection) -> list[str]:
    return [name for (name,) in connection.execute("SELECT name FROM files ORDER BY name")]


def _looks(name: str) -> str:
    """Composed and decomposed accents look the same, and invisible characters do not count."""
    return unicodedata.normalize("NFC", "".join(char for char in name if unicodedata.category(char) != "Cf"))


def _last(name: str) -> str:
    return name.replace("\\", "/").rstrip("/").rpartition("/")[2].casefold()


def _shown(row: sqlite3.Row) -> Json:
    if row["flaw"]:
        return {"path": row["name"], "unreadable": row["flaw"]}
    own = {"path": row["name"], "kind": row["kind"], "title": row["title"], "bytes": row["size_bytes"]}
    shown = {key: value for key, value in own.items() if value != ""}
    if row["is_waiting"] and row["next_page"] == 1:
        return {**shown, "note": "not indexed yet"}
    shown |= {"lines": row["lines"]} | {key: row[key] for key in ("pages", "encoding") if row[key]}
    note = f"indexed up to page {row['next_page'] - 1} so far" if row["is_waiting"] else row["cut"]
    return {**shown, "note": note} if note else shown


def _hit(row: sqlite3.Row, *, score: float) -> Json:
    shown: Json = {"path": row["name"], "lines": f"{row['first']}-{row['last']}", "score": round(score, 2)}
    shown |= {key: row[key] for key in ("page", "skip", "heading", "encoding") if row[key]}
    return {**shown, "snippet": row["snippet"][:MAX_SNIPPET_CHARS]}


MOST_TERMS = 32
"""Words of a question that are looked up; each costs time."""
MOST_IN_A_ROW = 8
"""Words joined by punctuation that are looked for as one thing too; more are no name or number."""


def expression(question: str) -> str | None:
    """An FTS5 expression that any word of the question satisfies; None if it has no letter and no digit.

    Every word is quoted and holds letters and digits alone, so nothing in it is an operator. Words of grammar are
    dropped, unless nothing else is left. What is joined by punctuation (``ERR_12``, ``road-trip``) counts as one thing
    too, so that it ranks before its parts.
    """
    compounds = COMPOUND.findall(unicodedata.normalize("NFC", question))
    terms = [term for compound in compounds for term in _terms(compound)]
    wanted = [term for term in terms if term not in STOP_WORDS] or terms
    phrases = [_phrase(term) for term in dict.fromkeys(wanted)]
    return " OR ".join(phrases[:MOST_TERMS]) or None


def _terms(compound: str) -> Iterator[str]:
    words = [word.lower() for word in WORD.findall(compound)]
    if 1 < len(words) <= MOST_IN_A_ROW and not UNSPACED.search(compound):
        yield " ".join(words)
        words = [word for word in words if len(word) > 1]  # single letters say nothing without their neighbours
    for word in words:
        yield from RUN.findall(word)


def _phrase(term: str) -> str:
    if not UNSPACED.match(term):
        return f'"{term}"'
    if len(term) == 1:
        return f'"{term}" *'
    pairs = (term[at : at + 2] for at in range(len(term) - 1))
    return f'"{" ".join(pairs)}"'


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
