"""From a question to what the full-text index is asked, and from a text without spaces to words it can hold. Pure."""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from loom_worker.core.words import COMPOUND, RUN, STOP_WORDS, UNSPACED, WORD, forms_of

MOST_TERMS = 32
"""Words of a question that are looked up; each costs a query, and a question has seldom more than ten."""

MOST_IN_A_ROW = 8
"""Words without a space between them that are looked for as one thing too; more are no name or number."""
SEARCHED = 2000
"""Characters of each tool result, and of each call's arguments, that can be found: the head says what it was about,
the rest is mostly rows, which would make up nine tenths of the index. The triggers on ``messages`` cut there too."""

_TAIL = re.compile(r"['’](?:s|t|d|m|re|ve|ll)$")


@dataclass(frozen=True, slots=True)
class Term:
    """One word of a question, in all the spellings that count as it."""

    forms: tuple[str, ...]
    """Lower case; a form of several words means these words in a row."""
    is_prefix: bool = False
    """The form need only be how the word begins."""


def terms(question: str) -> tuple[Term, ...]:
    """What to look for, each thing once, at most MOST_TERMS; empty if the question has no letter and no digit.

    Words of grammar are dropped, unless nothing else is left; names that look like them (``Will``, ``US``) are kept
    where the capital tells.
    """
    text = unicodedata.normalize("NFC", question)
    compounds = [_TAIL.sub("", compound) for compound in COMPOUND.findall(text)]
    is_shouted = text.isupper()
    wanted = [
        term
        for at, compound in enumerate(compounds)
        for term in _of_compound(compound, may_be_name=at > 0 and not is_shouted)
    ]
    if not wanted:
        wanted = [Term((word.lower(),)) for compound in compounds for word in WORD.findall(compound)]
    return tuple(dict.fromkeys(wanted))[:MOST_TERMS]


def _of_compound(compound: str, *, may_be_name: bool) -> Iterator[Term]:
    """The matter in words that stand without a space: each of them, and all in a row (an address, a number, a name)."""
    words = WORD.findall(compound)
    if 1 < len(words) <= MOST_IN_A_ROW and not UNSPACED.search(compound):
        yield Term((" ".join(words).lower(),))
        words = [word for word in words if len(word) > 1]  # single letters say nothing without their neighbours
    for word in words:
        yield from _of_word(word, may_be_name=may_be_name)


def _of_word(word: str, *, may_be_name: bool) -> Iterator[Term]:
    if UNSPACED.search(word):
        yield from (term for run in RUN.findall(word) for term in _of_run(run))
        return
    lower = word.lower()
    is_name = may_be_name and len(word) > 1 and word[0].isupper()
    if lower not in STOP_WORDS or is_name:
        yield Term(tuple(sorted(forms_of(lower))))


def _of_run(run: str) -> Iterator[Term]:
    if not UNSPACED.match(run):
        yield Term((run.lower(),))
    elif len(run) == 1:
        yield Term((run,), is_prefix=True)
    else:
        yield from (Term((run[at : at + 2],)) for at in range(len(run) - 1))
