"""Ranks the messages that contain words of a query, and makes their snippets. Pure.

The score is BM25 over the session's own messages, so no other session affects it, corrected by how much of the query a
message and its neighbours cover together, whether it follows a message that asks the same, and how close to each other
the words are.
"""

import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise
from math import log

from loom_worker.core.words import stemmed
from loom_worker.store.search_words import Term

SNIPPET = 200
"""Characters of a snippet, its ellipses included."""
PARTS = (0.3, 0.3, 0.15, 0.15)
"""Weights of a word for a message whose neighbours contain it, nearest first: question and answer, and half of that for
the next ones. An answer seldom repeats the words of its question, so the neighbours are evidence; below a half, or two
neighbours would outweigh the message itself."""
ANSWERS = (0.5, 0.25)
"""Additional weights of a question's words for the first and the second message after it: they may answer it."""
WHOLE = 1.0
"""Added to the score of a message that contains the whole query, as a share of the score; less for a part of the query.
Words of neighbours count here as much as they do above."""
QUESTION_MARKS = ("?", "？")
QUESTION = 0.8
"""Factor for a message that ends in a question: it contains the words of the query, but not the answer."""
AUTHOR = 0.5
"""Added to the score of a message by whom the question is about, as a share of it: people call themselves ``I``."""
NAME = 0.5
"""Weight of a speaker's name as a word: it also stands in every greeting of the other one."""
SYNONYM = 0.4
"""Weight of a synonym in a message that lacks the word of the question. From 0.25 to 0.5 recall differs by 0.4 points,
at 0.7 it is lower than without synonyms."""
SPECIFIC = 0.2
"""Added to the score of a message that says when, as a share of it, and once more if it names something: most questions
ask for what a message tells, and small talk (``That is great!``) tells nothing. From 0.15 to 0.25 recall differs by 0.7
points."""
TOOL = 0.5
"""Factor for a hit in a tool's result, which is long, and data rather than speech."""
K1, B = 1.2, 0.75
"""BM25's usual constants; repetitions of a word within a message are not counted, because most messages are short."""
NEAR = 2000
"""Characters of a message within which closeness is measured; a chat's messages are shorter."""
REPEATED = 0.6
"""Share of a text's words that another one must contain to count as a repetition."""
LONGEST = 100_000
"""Characters of a message that are searched for the best snippet."""
WORD = 6
"""Characters of a word and the space behind it."""
_WHEN = re.compile(
    r"\d|\b(?:ago|yesterday|today|tonight|tomorrow|last|next|weeks?|weekend|months?|years?|recently|since|just)\b"
)  # in lower case, which takes half the time of ignoring case
_NAMED = re.compile(r"(?<=[a-zß-ÿ,'’] )[A-ZÀ-Þ][^\W\d_]+")  # inside a sentence


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a message in its session. Tool messages and empty ones are nobody's neighbours."""

    n: int
    role: str
    characters: int
    before: tuple[int, ...]
    """Up to four messages before it, the nearest first."""
    after: tuple[int, ...]
    """Up to four messages after it, the nearest first."""
    is_question: bool
    lane: str = ""


@dataclass(frozen=True, slots=True)
class Holders:
    """Which messages hold which terms of a question, and what each term is worth."""

    terms: Mapping[int, int]
    """By message a bit for each term that it holds."""
    sums: Mapping[int, float]
    """By message what its terms are worth together."""
    weights: tuple[float, ...]
    """By term: the rarer, the more."""

    whole: float
    """What all terms that any message holds are worth together."""

    def worth(self, terms: int) -> float:
        """What these terms, a bit each, are worth together."""
        return sum(weight for at, weight in enumerate(self.weights) if terms >> at & 1)


def rarity(count: int, size: int) -> float:
    """What a term is worth that so many of so many messages hold; nothing if none does."""
    return log(1 + (max(size, count) - count + 0.5) / (count + 0.5)) if count else 0.0


def holders(
    found: Sequence[Collection[int]],
    *,
    size: int,
    weights: Sequence[float] | None = None,
    synonyms: Mapping[int, Collection[int]] | None = None,
) -> Holders:
    """Sort what was found by message; terms that no message holds are worth nothing.

    Args:
        found: for each term of the question the messages that hold it.
        size: messages in the session, or about as many.
        weights: what each term is worth, unless its rarity says it.
        synonyms: by place of a term the messages that hold a synonym of it.
    """
    weights = list(weights or [rarity(len(rows), size) for rows in found])
    whole = sum(weights)
    for at, others in (synonyms or {}).items():
        only = set(others).difference(found[at])
        found = [*found, only]
        weights.append(SYNONYM * (weights[at] or rarity(len(only), size)))
    terms: dict[int, int] = {}
    sums: dict[int, float] = {}
    for at, (rows, weight) in enumerate(zip(found, weights, strict=True)):
        for n in rows:
            terms[n] = terms.get(n, 0) | 1 << at
            sums[n] = sums.get(n, 0.0) + weight
    return Holders(terms, sums, tuple(weights), whole or sum(weights))


def best(scores: Mapping[int, float], most: int) -> list[int]:
    """The messages with the highest scores, the newest first among equals."""
    if len(scores) > most > 0:
        least = sorted(scores.values())[-most]  # without a key it takes a tenth of the time
        scores = {n: score for n, score in scores.items() if score >= least}
    return sorted(scores, key=lambda n: (-scores[n], -n))[:most]


def alone(held: Holders, places: Sequence[Position]) -> dict[int, float]:
    """What each of these messages is worth by itself: by its terms, all of them together twice, less if it is long."""
    mean = sum(place.characters for place in places) / max(1, len(places)) or 1.0
    return {
        place.n: held.sums[place.n] * _share(place, mean) * (1 + WHOLE * held.sums[place.n] / held.whole)
        for place in places
    }


def _share(place: Position, mean: float) -> float:
    """Long messages hold any word more easily."""
    length = (K1 + 1) / (1 + K1 * (1 - B + B * place.characters / mean))
    return length * TOOL if place.role == "tool" else length


def with_neighbours(own: Mapping[int, float], held: Holders, places: Sequence[Position]) -> dict[int, float]:
    """Add to each message the words of its neighbours; so messages without a word of the query get a score, too.

    Args:
        own: what each of these messages is worth by itself.
    """
    scores, per_whole = dict(own), WHOLE / held.whole
    for n, (worth, missing) in _neighbours(held, places).items():
        covered = held.sums.get(n, 0.0) + missing
        scores[n] = scores.get(n, 0.0) + worth * (1 + covered * per_whole)
    for place in places:
        for n, part in zip(place.after, ANSWERS, strict=False) if place.is_question else ():
            scores[n] = scores.get(n, 0.0) + part * held.sums[place.n]
    return scores


def _neighbours(held: Holders, places: Sequence[Position]) -> dict[int, tuple[float, float]]:
    """For each message the weight of its neighbours' terms, and the weight of those among them that it lacks."""
    worth = cache(held.worth)
    near: dict[int, tuple[float, float]] = {}
    for place in places:
        terms, total = held.terms[place.n], held.sums[place.n]
        for n, part in (*zip(place.before, PARTS, strict=False), *zip(place.after, PARTS, strict=False)):
            before, missing = near.get(n, (0.0, 0.0))
            lacks = terms & ~held.terms.get(n, 0)
            near[n] = before + part * total, missing + part * worth(lacks) if lacks else missing
    return near


def stems(terms: Sequence[Term]) -> tuple[tuple[str, ...], ...]:
    """For each word of a question how it begins in a folded text, its other spellings too: the index stems words.

    Words in a row are left out, each of them is a term of its own.
    """
    single = ([form for form in term.forms if " " not in form] for term in terms)
    return tuple(tuple({stemmed(fold(form)) for form in forms}) for forms in single if forms)


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


def worth(text: str, *, is_by_subject: bool = False, people: Collection[str] = ()) -> float:
    """The factor of a text for asking rather than stating, for its author, and for telling a time or a name.

    Otherwise earlier questions would come up first, and what others say to the one whom the question is about.

    Args:
        people: words in lower case of the speakers' names, with which they only address each other.
    """
    asks = text.rstrip().endswith(QUESTION_MARKS)
    names = any(name.lower() not in people for name in _NAMED.findall(text[:NEAR]))
    told = 1 + SPECIFIC * (names + bool(_WHEN.search(text[:NEAR].lower())))
    return (QUESTION if asks else 1.0) * (1 + AUTHOR if is_by_subject else 1.0) * told


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


def shortened(text: str) -> str:
    """How a text begins, at most SNIPPET characters on one line."""
    line = " ".join(text.split())
    if len(line) <= SNIPPET and len(text) <= SNIPPET:
        return line
    end = line.rfind(" ", SNIPPET - 20, SNIPPET - 1)
    return line[: end if end > 0 else SNIPPET - 1].rstrip() + "…"


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
