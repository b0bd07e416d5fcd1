"""Finds prompt injection: text that gives a model instructions which are not its operator's. Pure, and linear.

Rules over words can be talked around; they catch what is copied from lists of attacks, and much that is like it. What
a model may do must be limited elsewhere, by tools, approvals and budgets. docs/guardrails.md has recall and alarms.
"""

import base64
import binascii
import re
import unicodedata
from collections.abc import Iterator

from loom_worker.guard.injection_rules import RULES

MOST_CHARS = 4_000
"""Of a paragraph that is looked at in one piece."""


def injections(text: str) -> Iterator[tuple[int, int]]:
    """Paragraphs in which somebody tries it: where each begins and ends."""
    for match in _PARAGRAPH.finditer(text):
        for start in range(match.start(), match.end(), MOST_CHARS):
            end = min(start + MOST_CHARS, match.end())
            # Windows overlap by a sentence, for a cut must not hide one.
            if _is_one(text[max(match.start(), start - _OVERLAP_CHARS) : end]):
                yield start, end


def _is_one(paragraph: str) -> bool:
    if _HIDDEN.search(paragraph):
        return True
    return any(
        pattern.search(form)
        for form in _forms(paragraph)
        for stems, pattern in RULES
        if any(stem in form for stem in stems)
    )


def _forms(paragraph: str) -> Iterator[str]:
    """The words as they are meant: without disguises."""
    plain = _words(paragraph)
    yield plain
    if not plain.isascii():
        yield plain.translate(_LOOKALIKES)
    if _MIXED.search(plain):
        yield plain.translate(_LEET)
    if _SPACED.search(plain):
        yield " ".join(_SPACED.sub(lambda found: f"{_GAPS.sub('', found[0])} ", plain).split())
    for found in _BASE64.finditer(paragraph):
        decoded = _decoded(found[0])
        if any(map(str.isalpha, decoded)):
            yield _words(decoded)


def _words(text: str) -> str:
    seen = (char for char in unicodedata.normalize("NFKC", text) if unicodedata.category(char) != "Cf")
    return " ".join("".join(seen).casefold().split())


def _decoded(text: str) -> str:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True).decode()
    except (binascii.Error, ValueError):
        return ""


_PARAGRAPH = re.compile(r"(?:[^\n]+\n?)+")
_OVERLAP_CHARS = 200
_HIDDEN = re.compile(r"[\U000e0020-\U000e007f]{3}|[\u202a-\u202e\u2066-\u2069]{2}|[\u200b\u2060\ufeff]{4}")
"""Tags, turned directions and invisible characters in a row, in which no person writes."""
_BASE64 = re.compile(r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{24,2000}={0,2}(?![A-Za-z0-9+/])")
_SPACED = re.compile(r"(?<!\w)(?:\w[ .-]){5,60}\w(?!\w)")
_GAPS = re.compile(r"[ .-]")
_MIXED = re.compile(r"[a-z][013457@$][a-z]|(?<!\w)[013457@$][a-z]{3}")
_LEET = str.maketrans("013457@$", "oieastas")
_LOOKALIKES = str.maketrans("аеорсухіԁ’", "aeopcyxid'")
