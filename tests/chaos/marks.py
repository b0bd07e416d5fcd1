"""Marks: the word by which every witness knows a turn, and the words by which the model's replies are told apart.

A client's turn has its mark in its input. Stages of a workflow's run share prompts and quote each other, so the mark of
a stage's turn is made of what was asked of whom: the run's id, which every prompt of ours contains, makes it unique.
"""

import re
from hashlib import sha256

MARK = re.compile(r"\bT\d{5,}\b")
"""A turn's mark in its input: ``T00042``."""
REPLY = re.compile(r"\b(T\d{5,})\.(\d+)\b")
"""How every reply of the model begins: the mark, and which of that mark's requests it answers, from 1."""
RUN_ID = re.compile(r"\brun_[0-9a-z]{26}\b")
"""Stands in every prompt of a run."""
SIGNS = "~!@#$%^&*+"
"""A digit each, in names that must not count as a part of an answer."""
UNSPOKEN = re.compile(rf"<([{re.escape(SIGNS)}]{{5,}})\.([{re.escape(SIGNS)}]+)>")
"""The name of a reply in signs alone: Loom takes answers that differ in such ends only for equal ones."""
_TO_SIGNS, _TO_DIGITS = str.maketrans("0123456789", SIGNS), str.maketrans(SIGNS, "0123456789")


def mark_of(text: str, agent: str = "") -> str:
    """The mark of a turn by its input, "" if it has none.

    Args:
        agent: who is asked; without it the marks of a run's stages are not known.
    """
    if agent and RUN_ID.search(text):
        return f"T{int(sha256(f'{agent}: {text}'.encode()).hexdigest()[:12], 16):015d}"
    found = MARK.search(text)
    return found[0] if found else ""


def child_mark(nonce: str) -> str:
    """The mark of the turn that a call of the model asks for, by what is the call's alone."""
    return f"T{int(sha256(nonce.encode()).hexdigest()[:12], 16):015d}"


def reply_name(mark: str, nth: int) -> str:
    """The name of the reply to a mark's n-th request."""
    return f"{mark}.{nth}"


def unspoken(name: str) -> str:
    """A reply's name in signs."""
    return f"<{name.removeprefix('T').translate(_TO_SIGNS)}>"


def replies_in(text: str) -> list[tuple[str, int]]:
    """The replies that a text is of: each mark and number, in their order."""
    found = [(each.start(), each[1], each[2]) for each in REPLY.finditer(text)]
    for each in UNSPOKEN.finditer(text):
        found.append((each.start(), f"T{each[1].translate(_TO_DIGITS)}", each[2].translate(_TO_DIGITS)))
    return [(mark, int(nth)) for _, mark, nth in sorted(found)]
