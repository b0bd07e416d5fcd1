"""What of a text says what it is about: words without endings, and pairs of them; no function words, no dates."""

import re
from itertools import pairwise

_WORD = re.compile(r"[^\W_]+")
_MONTHS = "january|february|march|april|may|june|july|august|september|october|november|december"
_PERIOD = re.compile(
    r"\b(?:(?:this|last|past|previous|current|next|each of the last)\s+(?:\d+\s+)?(?:day|week|month|quarter|year)s?"
    rf"|(?:in|since|until|till|of)\s+(?:{_MONTHS})(?:\s+20\d\d)?|q[1-4](?:\s+20\d\d)?|(?:{_MONTHS})\s+20\d\d"
    r"|20\d\d-\d\d(?:-\d\d)?|20\d\d|year before)\b"
)
_FUNCTION_WORDS = frozenset(
    "a about after all also am an and any are as at be been before both but by can could did do does each for "
    "from get give got had has have he her his how i if in into is it its let list make many may me might much "
    "must my no not of off on onto or our out over people please s shall she should show so t tell than that the "
    "their them then there these they thing this those time to up us use was we were what when where which while "
    "who whom whose why will with work would you your".split()
)
"""Our own short list: scikit-learn's drops words that carry meaning, such as ``bill``, ``system`` and ``top``."""


def terms(text: str) -> list[str]:
    """The words of a text and its pairs of neighbouring words (``"order value"``), in order, repeats kept.

    A period (last year, March 2025) is not what a question is about; two of them are a comparison and count as
    the word ``versus``.
    """
    lowered, periods = _PERIOD.subn(" ", text.lower())
    words = [_stem(word) for word in _WORD.findall(lowered) if word not in _FUNCTION_WORDS]
    words += ["versus"] * (periods > 1)
    return words + [f"{one} {other}" for one, other in pairwise(words)]


def _stem(word: str) -> str:
    """Take off plural, -ed and -ing; more would make strangers meet (``orders`` and ``ordinary``)."""
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    for ending, shortest in (("ing", 6), ("ed", 5)):
        if len(word) >= shortest + 1 and word.endswith(ending):
            return word[: -len(ending)]
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word
