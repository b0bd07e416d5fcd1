"""From a question to an expression of FTS5. Pure."""

import unicodedata
from collections.abc import Iterator

from loom_worker.core.words import COMPOUND, RUN, STOP_WORDS, UNSPACED, WORD

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
