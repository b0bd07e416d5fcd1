"""Marks: the word by which every witness knows a turn, and the words by which the model's replies are told apart."""

import re

MARK = re.compile(r"\bT\d{5,}\b")
"""A turn's mark in its input: ``T00042``."""
REPLY = re.compile(r"\b(T\d{5,})\.(\d+)\b")
"""How every reply of the model begins: the mark, and which of that mark's requests it answers, from 1."""


def mark_of(text: str) -> str:
    """The first mark in a text, "" if there is none."""
    found = MARK.search(text)
    return found[0] if found else ""


def reply_name(mark: str, nth: int) -> str:
    """The name of the reply to a mark's n-th request."""
    return f"{mark}.{nth}"


def replies_in(text: str) -> list[tuple[str, int]]:
    """The replies that a text is of: each mark and number."""
    return [(mark, int(nth)) for mark, nth in REPLY.findall(text)]
