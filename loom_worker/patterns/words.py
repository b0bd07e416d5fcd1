"""The terms of a text that say what it is about: words without endings, pairs of them, pieces of words, meanings."""

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

from loom_worker.core.words import RUN, STOP_WORDS, UNSPACED, WORD, stemmed

_MONTHS = "january|february|march|april|may|june|july|august|september|october|november|december"
_PERIOD = re.compile(
    r"\b(?:(?:this|last|past|previous|current|next|each of the last)\s+(?:\d+\s+)?(?:day|week|month|quarter|year)s?"
    rf"|(?:in|since|until|till|of)\s+(?:{_MONTHS})(?:\s+20\d\d)?|q[1-4](?:\s+20\d\d)?|(?:{_MONTHS})\s+20\d\d"
    r"|20\d\d-\d\d(?:-\d\d)?|20\d\d|year before)\b"
)
FUNCTION_WORDS = STOP_WORDS | {"may"}
"""Words of grammar and of asking. They count less than others, and still something: in a short intent "how much" or
"do you" may be all that distinguishes it from the next."""
PIECE_CHARS = 4


def words(text: str) -> list[str]:
    """The words of a text as they stand there, in small letters; repeats are kept.

    A period (last year, March 2025) is not what a question is about; two of them are a comparison and count as
    the word ``versus``. Scripts that are written without spaces give each two neighbouring characters.
    """
    lowered, periods = _PERIOD.subn(" ", _plain(text))
    return [*_words(lowered), *["versus"] * (periods > 1)]


def terms(text: str) -> list[str]:
    """The words of a text without their endings, then its pairs of words that are not of grammar (``order value``)."""
    found = [stemmed(word) for word in words(text)]
    telling = [word for word in found if word not in FUNCTION_WORDS]
    return found + [f"{one} {other}" for one, other in pairwise(telling)]


def meanings(word: str) -> tuple[str, ...]:
    """The meanings that a word without its ending may have, each as a term that no word is (``=customer.0``)."""
    return _meanings().get(word, ())


@lru_cache(maxsize=1)
def _meanings() -> dict[str, tuple[str, ...]]:
    text = Path(__file__).with_name("synonyms.txt").read_text("utf-8")
    found: dict[str, tuple[str, ...]] = {}
    for number, line in enumerate(line for line in text.splitlines() if not line.startswith("#")):
        synonyms = line.split()
        for word in dict.fromkeys(map(stemmed, synonyms)):
            found[word] = (*found.get(word, ()), f"={synonyms[0]}.{number}")
    return found


def pieces(text: str) -> list[str]:
    """Each run of four characters within a word, its edges being characters too (``" ord"``); repeats are kept.

    They match where words do not: ``refund`` and ``refunded``, ``organise`` and ``reorganisation``, a typing error.
    """
    found: list[str] = []
    for word in _words(_PERIOD.sub(" ", _plain(text))):
        if UNSPACED.match(word):
            found += word
            continue
        edged = f" {word} "
        found += [edged[start : start + PIECE_CHARS] for start in range(max(1, len(edged) - PIECE_CHARS + 1))]
    return found


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", text).lower()


def _words(lowered: str) -> Iterator[str]:
    for word in WORD.findall(lowered):
        if word.isascii() or not UNSPACED.search(word):
            yield word
            continue
        for run in RUN.findall(word):
            if UNSPACED.match(run):
                yield from (run[start : start + 2] for start in range(max(1, len(run) - 1)))
            else:
                yield run
