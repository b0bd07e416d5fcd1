"""From a question to an expression of FTS5, and from a text without spaces to words it can hold. Pure."""

import re
import unicodedata
from collections.abc import Iterator

MOST_TERMS = 32
"""Words of a question that are looked up; each costs time."""
MOST_IN_A_ROW = 8
"""Words joined by punctuation that are looked for as one thing too; more are no name or number."""

STOP_WORDS = frozenset(
    """a about an and any are as at be been but by can could did do does for from had has have he her his how i if in
    into is it its me my no not of on or our she should so some than that the their them then there these they this
    those to us was we were what when where which who why will with would you your""".split()
)
_CJK = (
    "\u3041-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
_UNSPACED = re.compile(f"[{_CJK}]")
_RUN = re.compile(f"[{_CJK}]+|[^{_CJK}]+")
_WORD = re.compile(r"[^\W_]+")
_LUMP = re.compile(r"[^\W_]+(?:[^\w\s]{1,2}[^\W_]+|_+[^\W_]+)*")


def expression(question: str) -> str | None:
    """An FTS5 expression that any word of the question satisfies; None if it has no letter and no digit.

    Every word is quoted and holds letters and digits alone, so nothing in it is an operator. Words of grammar are
    dropped, unless nothing else is left. What is joined by punctuation (``ERR_12``, ``road-trip``) counts as one thing
    too, so that it ranks before its parts.
    """
    lumps = _LUMP.findall(unicodedata.normalize("NFC", question))
    terms = [term for lump in lumps for term in _terms(lump)]
    wanted = [term for term in terms if term not in STOP_WORDS] or terms
    phrases = [_phrase(term) for term in dict.fromkeys(wanted)]
    return " OR ".join(phrases[:MOST_TERMS]) or None


def grams(text: str) -> str:
    """Chinese, Japanese and Korean words of a text as pairs of characters, which FTS5 would take for one word a run.

    The last character of a run stands alone too: then every character begins some token.
    """
    if text.isascii() or not _UNSPACED.search(text):
        return ""
    runs = (run for run in _RUN.findall(unicodedata.normalize("NFC", text)) if _UNSPACED.match(run))
    return " ".join(run[at : at + 2] for run in runs for at in range(len(run)))


def _terms(lump: str) -> Iterator[str]:
    words = [word.lower() for word in _WORD.findall(lump)]
    if 1 < len(words) <= MOST_IN_A_ROW and not _UNSPACED.search(lump):
        yield " ".join(words)
        words = [word for word in words if len(word) > 1]  # letters say nothing without what they stand beside
    for word in words:
        yield from _RUN.findall(word)


def _phrase(term: str) -> str:
    if not _UNSPACED.match(term):
        return f'"{term}"'
    if len(term) == 1:
        return f'"{term}" *'
    pairs = (term[at : at + 2] for at in range(len(term) - 1))
    return f'"{" ".join(pairs)}"'
