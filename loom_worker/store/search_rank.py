"""Which of the messages that hold words of a question come first, and what is shown of them. Pure.

The score is BM25 over the session's own messages, so it depends on nobody else's, and on three things more: how much of
the question a message covers, how near to each other the words stand in it, and what the messages beside it say.
"""

import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import log

from loom_worker.store.search_words import Term

SNIPPET = 200
"""Characters of a snippet, its ellipses included."""
NEIGHBOUR = 0.3
"""What a message gets of the score of each message beside it, and half of that from those behind them. An answer
seldom repeats the words of its question, so what stands around is evidence; below a half, or two neighbours would
outweigh the message itself."""
WHOLE = 1.0
"""What is added to the score of a message that holds all of the question, in parts of the score; less for a part."""
QUESTION = 0.8
"""What a message that ends in a question counts: it holds the words that are looked for, and not their answer."""
TOOL = 0.5
"""What a hit in a tool's result counts beside one in what somebody said: it is long, and data rather than speech."""
K1, B = 1.2, 0.75
"""BM25's usual constants; how often a word is repeated in a message is not counted, most are short."""
NEAR = 2000
"""Characters of a message within which nearness is looked at; a chat's messages are shorter."""
REPEATED = 0.6
"""Share of a text that another one must hold to say the same."""
LONGEST = 100_000
"""Characters of a message in which the place for the snippet is looked for."""
WORD = 6
"""Characters of a word and the space behind it."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where in its session a message stands."""

    n: int
    role: str
    characters: int
    near: tuple[int, ...]
    """The messages before and after it, tools' left out: two each way, for question and answer, as far as there are."""
    far: tuple[int, ...]
    """The next two each way."""


def own_scores(found: Sequence[Collection[int]], *, size: int) -> dict[int, float]:
    """Score each message by the terms it holds: the rarer ones count more, and all of them together twice.

    Args:
        found: for each term of the question the messages that hold it.
        size: messages in the session, or about as many.
    """
    weights = [log(1 + (max(size, len(rows)) - len(rows) + 0.5) / (len(rows) + 0.5)) for rows in found]
    sums: dict[int, float] = {}
    for rows, weight in zip(found, weights, strict=True):
        for n in rows:
            sums[n] = sums.get(n, 0.0) + weight
    whole = sum(weight for weight, rows in zip(weights, found, strict=True) if rows)
    return {n: score * (1 + WHOLE * score / whole) for n, score in sums.items()}


def best(scores: Mapping[int, float], most: int) -> list[int]:
    """The messages with the highest scores, the newest first among equals."""
    return sorted(scores, key=lambda n: (-scores[n], -n))[:most]


def by_length(own: Mapping[int, float], places: Sequence[Place]) -> dict[int, float]:
    """The scores of these messages, less for long ones, which hold any word more easily."""
    mean = sum(place.characters for place in places) / max(1, len(places)) or 1.0
    return {place.n: own[place.n] * _share(place, mean) for place in places}


def _share(place: Place, mean: float) -> float:
    length = (K1 + 1) / (1 + K1 * (1 - B + B * place.characters / mean))
    return length * TOOL if place.role == "tool" else length


def with_neighbours(scores: Mapping[int, float], places: Sequence[Place]) -> dict[int, float]:
    """Add to each message a part of the scores beside it; messages without a score of their own come in so."""
    sums = dict(scores)
    for place in places:
        for part, around in ((NEIGHBOUR, place.near), (NEIGHBOUR / 2, place.far)):
            for n in around:
                sums[n] = sums.get(n, 0.0) + part * scores[place.n]
    return sums


def stems(terms: Sequence[Term]) -> tuple[tuple[str, ...], ...]:
    """For each word of a question how it begins in a folded text, its other spellings too: the index stems words.

    Words in a row are left out, each of them is a term of its own.
    """
    single = ([form for form in term.forms if " " not in form] for term in terms)
    return tuple(tuple({_stem(fold(form)) for form in forms}) for forms in single if forms)


def _stem(word: str) -> str:
    """The word without a regular ending, never under three letters; Porter's stem or a little less."""
    short = re.sub(r"(?:ations?|ing|ies|ied|ed|es|er|ly|s|e|y)$", "", word)
    short = re.sub(r"([bdgmnprt])\1$", r"\1", short) if short != word else word
    return short if len(short) > 2 else word


def _places_of(stem: str, folded: str) -> Iterator[int]:
    """Where words begin so that are no more than an ending longer; in writing without spaces: where it stands."""
    at = folded.find(stem)
    while at >= 0:
        end = at + len(stem)
        is_word = (at == 0 or not folded[at - 1].isalnum()) and not folded[end : end + 5].isalnum()
        if is_word or len(folded) < end + 5 or not stem.isascii():
            yield at
        at = folded.find(stem, end)


def nearness(text: str, looked_for: Sequence[Sequence[str]]) -> float:
    """How near the question's words stand to each other, 0 to 1: neighbours in the question, neighbours in the text."""
    folded = fold(text[:NEAR])
    at = [[place for stem in word for place in _places_of(stem, folded)] for word in looked_for]
    gaps = [min(abs(a - b) for a in ours for b in theirs) for ours, theirs in pairwise(at) if ours and theirs]
    return sum(min(1.0, WORD / max(1, gap)) for gap in gaps) / max(1, len(looked_for) - 1)


def worth(text: str) -> float:
    """What a text that asks is worth beside one that tells; searched for again and again, questions come up first."""
    return QUESTION if text.rstrip().endswith(("?", "？")) else 1.0


def gist(text: str) -> str:
    """The beginning of a text, as it is compared with others."""
    return " ".join(fold(text[:NEAR]).split())


def is_repeat(gist: str, other: str) -> bool:
    """True if one of two gists holds the whole other and little more: it is said again, or echoed."""
    shorter, longer = (gist, other) if len(gist) < len(other) else (other, gist)
    return len(shorter) >= REPEATED * len(longer) and shorter in longer


def snippet(text: str, looked_for: Sequence[Sequence[str]]) -> str:
    """The stretch of a text that holds most of what was looked for, at most SNIPPET characters on one line."""
    line = " ".join(text[:LONGEST].split())
    if len(line) <= SNIPPET:
        return line
    folded = fold(line)
    at = sorted(
        (n, number) for number, word in enumerate(looked_for) for stem in word for n in _places_of(stem, folded)
    )
    room = SNIPPET - 2
    start = max((start for start, _ in at), key=lambda start: _kinds(at, start, room), default=0)
    start = max(0, min(start - room // 4, len(line) - room))
    start = start if start == 0 else line.find(" ", start, start + 20) + 1 or start
    end = start + room
    if end < len(line):
        end = line.rfind(" ", end - 20, end) if " " in line[end - 20 : end] else end
    return ("…" if start else "") + line[start:end].strip() + ("…" if end < len(line) else "")


def _kinds(at: Sequence[tuple[int, int]], start: int, room: int) -> int:
    return len({number for place, number in at if start <= place < start + room * 3 // 4})


def fold(text: str) -> str:
    """Lower case without accents, as the index has it, each character still in its place."""
    return text.lower() if text.isascii() else "".join(map(_folded, text))


@lru_cache(maxsize=4096)
def _folded(character: str) -> str:
    apart = unicodedata.normalize("NFD", character)
    has_marks_only = all(map(unicodedata.combining, apart[1:]))  # a Korean syllable comes apart into letters
    return (apart if has_marks_only else character)[0].lower()[0]
