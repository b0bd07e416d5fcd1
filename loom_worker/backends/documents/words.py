"""From a question to an expression of FTS5, and from a text without spaces to words it can hold. Pure."""

import unicodedata
from collections.abc import Iterator

from loom_worker.core.text import LUMP, RUN, UNSPACED, WORD

MOST_TERMS = 32
"""Words of a question that are looked up; each costs time."""
MOST_IN_A_ROW = 8
"""Words joined by punctuation that are looked for as one thing too; more are no name or number."""

STOP_WORDS = frozenset(
    """a about an and any are as at be been but by can could did do does for from had has have he her his how i if in
    into is it its me my no not of on or our she should so some than that the their them then there these they this
    those to us was we were what when where which who why will with would you your""".split()
)


def expression(question: str) -> str | None:
    """An FTS5 expression that any word of the question satisfies; None if it has no letter and no digit.

    Every word is quoted and holds letters and digits alone, so nothing in it is an operator. Words of grammar are
    dropped, unless nothing else is left. What is joined by punctuation (``ERR_12``, ``road-trip``) counts as one thing
    too, so that it ranks before its parts.
    """
    lumps = LUMP.findall(unicodedata.normalize("NFC", question))
    terms = [term for lump in lumps for term in _terms(lump)]
    wanted = [term for term in terms if term not in STOP_WORDS] or terms
    phrases = [_phrase(term) for term in dict.fromkeys(wanted)]
    return " OR ".join(phrases[:MOST_TERMS]) or None


def grams(text: str) -> str:
    """Chinese, Japanese and Korean words of a text as pairs of characters, which FTS5 would take for one word a run.

    The last character of a run stands alone too: then every character begins some token.
    """
    if text.isascii() or not UNSPACED.search(text):
        return ""
    runs = (run for run in RUN.findall(unicodedata.normalize("NFC", text)) if UNSPACED.match(run))
    return " ".join(run[at : at + 2] for run in runs for at in range(len(run)))


def _terms(lump: str) -> Iterator[str]:
    words = [word.lower() for word in WORD.findall(lump)]
    if 1 < len(words) <= MOST_IN_A_ROW and not UNSPACED.search(lump):
        yield " ".join(words)
        words = [word for word in words if len(word) > 1]  # letters say nothing without what they stand beside
    for word in words:
        yield from RUN.findall(word)


def _phrase(term: str) -> str:
    if not UNSPACED.match(term):
        return f'"{term}"'
    if len(term) == 1:
        return f'"{term}" *'
    pairs = (term[at : at + 2] for at in range(len(term) - 1))
    return f'"{" ".join(pairs)}"'
