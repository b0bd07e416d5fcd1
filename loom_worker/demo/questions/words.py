"""A question's words as terms: ``customers`` and ``clients`` become CUSTOMER, what says nothing is left out.

A term is written in capitals, a period ``@p0``, a value of the database ``@v0``; every other word is itself and must
be read by a rule, or the question is refused.
"""

import re
from difflib import SequenceMatcher
from functools import cache

from loom_worker.demo.questions.shop import shop
from loom_worker.demo.slots import NUMBERS

_NEGATED = re.compile(
    r"\b(do|does|did|is|are|was|were|have|has|had|would|could|should)n['’]?t\b|\b(ca)n['’]t\b|\b(wo)n['’]t\b"
)
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}\b)")
_NUMBER_WORDS = re.compile(rf"\b(?:{'|'.join(NUMBERS)})\b")
_PUNCTUATION = re.compile(r"[^\w@.%-]+|(?<!\d)\.|\.(?!\d)|(?<!\w)-|-(?!\w)")


def plain(marked: str) -> str:
    """A question's marked text (``slots.Slots.marked``) in plain words: negations whole, numbers as digits."""
    text = _NEGATED.sub(lambda found: f"{found[1] or found[2] or found[3]} not", marked)
    text = _THOUSANDS.sub("", text.replace("&", " and ").replace("€", " "))
    text = _NUMBER_WORDS.sub(lambda found: str(NUMBERS[found[0]]), text)
    nations = shop().words["nations"]
    text = re.sub(rf"\b(?:{'|'.join(nations)})\b", lambda found: nations[found[0]], text)
    return " ".join(_PUNCTUATION.sub(" ", text.replace("_", " ")).split())


def terms(text: str) -> str:
    """A plain text with terms in place of words, and without those that say nothing."""
    for pattern, term in _terms():
        text = pattern.sub(f" {term} ", text)
    return idle_left_out(text)


def idle_left_out(text: str) -> str:
    """A plain text without the words that say nothing, all others as they are."""
    for idle in _idle():
        text = idle.sub(" ", text)
    return " ".join(text.split())


@cache
def _terms() -> tuple[tuple[re.Pattern[str], str], ...]:
    listed = shop().words["terms"]
    return tuple((re.compile(rf"(?<![\w@-])(?:{pattern})(?![\w-])"), term) for pattern, term in listed)


@cache
def _idle() -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(rf"(?<![\w@-])(?:{pattern})(?![\w-])") for pattern in shop().words["idle"])


def has_terms(text: str) -> bool:
    """Is there any word of the shop in it?"""
    return re.search(r"\b[A-Z]{3,}\b", text) is not None


def corrected(text: str) -> tuple[str, tuple[str, ...]]:
    """A plain text with a word's missing, doubled or swapped letter put right, and what was read for what."""
    meant = {word: right for word in text.split() if (right := _meant(word)) is not None}
    notes = tuple(f'I read "{word}" as "{right}".' for word, right in meant.items())
    return " ".join(meant.get(word, word) for word in text.split()), notes


def _meant(word: str) -> str | None:
    """The word of the shop that a word is with one slip; the first letter is right, and the plural is no slip."""
    slips, own = shop().words["slips"], shop().words["no_slips"]
    if len(word) < 5 or word in (*own, *slips) or not word.isalpha():
        return None
    near = (right for right in slips if word[0] == right[0] and word + "s" != right)
    return next((right for right in near if _is_slip(word, right)), None)


def _is_slip(word: str, right: str) -> bool:
    """One letter left out or one too many, or the letters in another order."""
    return sorted(word) == sorted(right) or SequenceMatcher(None, word, right).ratio() > 0.9
