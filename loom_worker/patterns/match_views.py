"""What each pattern says, counted once, and how alike it is to a question: the similarity that matching goes by."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

from loom_worker.patterns.index import Postings, Rarity, Rows, Vector, count, joined
from loom_worker.patterns.match_kin import meanings
from loom_worker.patterns.words import FUNCTION_WORDS, pieces, stemmed, terms, words
from loom_worker.values.patterns import Pattern

if TYPE_CHECKING:
    from loom_worker.patterns.index import Floats

_LEAST_IN_USE = 0.5
"""Share of the numbered terms that patterns still say below which all are numbered anew."""

_SINGLE = frozenset({"name", "title", "intents", "use_cases"})
_SHOWN_PIECES = 3

Texts = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Weighing:
    """How much each idea counts; chosen on the development questions (``python -m bench.matching --ideas``)."""

    fields: Mapping[str, float] = field(
        default_factory=lambda: {"name": 2.0, "title": 2.0, "intents": 2.0, "use_cases": 1.0, "description": 1.0}
    )
    """How often (1 or more, 0: never) a field's terms are counted in all that a pattern says."""
    function_word: float = 0.5
    """Against another word's 1."""
    pair: float = 0.6
    """A pair of neighbouring words against a word's 1."""
    meaning: float = 0.9
    """A meaning that several words share (match_kin.py) against a word's 1."""
    nearest: float = 0.2
    """Share (0-1) of the nearest single text, a title or an intent, against all texts together: the first alone
    follows chance words, the second alone drowns a good intent."""
    pieces: float = 0.5
    """Share (0-1) of the view by pieces of words against that by words."""
    unknown: float = 1.0
    """What a word that no pattern says counts against a question; without it "a joke about customers" would be all
    about customers."""
    unknown_pair: float = 0.3
    """A new pair of known words is smaller news."""

    def gain(self, term: str) -> float:
        """What a term of words weighs beside its rarity."""
        if " " in term:
            return self.pair
        if term.startswith("="):
            return self.meaning
        return self.function_word if term in FUNCTION_WORDS else 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Alike:
    """A question against all patterns."""

    words: Mapping[str, tuple[str, ...]]
    """The question's words, each with the terms that it stands for."""
    scores: "Floats"
    """0-1, in the order of the patterns."""
    by_word: Vector
    by_piece: Vector


@dataclass(frozen=True, slots=True)
class _Reading:
    """A pattern's terms, counted."""

    whole: Rows
    singles: Rows
    pieces: Rows


class Views:
    """All patterns (at least one), by their words and by pieces of words. Nothing is written after construction."""

    def __init__(self, patterns: Sequence[Pattern], weighing: Weighing, before: "Views | None" = None) -> None:
        """Build; what was read for ``before`` is not read again."""
        self.weighing = weighing
        old = before if before and before.weighing == weighing and before.in_use() >= _LEAST_IN_USE else None
        self._words: dict[str, int] = dict(old._words) if old else {}
        self._pieces: dict[str, int] = dict(old._pieces) if old else {}
        self._readings: dict[Texts, _Reading] = {}
        read_before = old._readings if old else {}
        said = [_texts(pattern, weighing.fields) for pattern in patterns]
        for texts in said:
            if texts not in self._readings:
                self._readings[texts] = read_before.get(texts) or self._read(texts)
        self._weigh([self._readings[texts] for texts in said])

    def in_use(self) -> float:
        """Of all terms that were ever numbered, those that a pattern says (0-1)."""
        return min(self._by_word.share_in_use(), self._by_piece.share_in_use())

    def alike(self, question: str) -> Alike:
        """Compare a question with all patterns."""
        import numpy as np

        weighing = self.weighing
        asked = self._by_word.vector(_by_words(question), unknown=weighing.unknown, unknown_pair=weighing.unknown_pair)
        cut = self._by_piece.vector(pieces(question) if weighing.pieces else (), unknown=weighing.unknown)
        nearest = np.maximum.reduceat(self._singles.cosines(asked), self._first_single)
        by_word = (1 - weighing.nearest) * self._whole.cosines(asked) + weighing.nearest * nearest
        by_piece = self._in_pieces.cosines(cut) * cut.known
        scores = (1 - weighing.pieces) * by_word * asked.known + weighing.pieces * by_piece
        return Alike({word: _meant(word) for word in words(question)}, np.minimum(scores, 1.0), asked, cut)

    def counted(self, alike: Alike, position: int) -> tuple[str, ...]:
        """The question's words that made a pattern alike, the weightiest first.

        Words of grammar, and pieces of words, are told only where there is nothing else.
        """
        parts = _parts(alike.by_word, self._whole, position)
        weights = {word: sum(parts.get(term, 0.0) for term in meant) for word, meant in alike.words.items()}
        shared = sorted((word for word in weights if weights[word] > 0), key=lambda word: (-weights[word], word))
        telling = tuple(word for word in shared if word not in FUNCTION_WORDS)
        return telling or tuple(shared) or self._counted_pieces(alike, position)

    def _counted_pieces(self, alike: Alike, position: int) -> tuple[str, ...]:
        parts = _parts(alike.by_piece, self._in_pieces, position)
        telling = sorted((piece for piece in parts if parts[piece] > 0), key=lambda piece: (-parts[piece], piece))
        return tuple(telling[:_SHOWN_PIECES])

    def _read(self, texts: Texts) -> _Reading:
        by_word = [[Counter(_by_words(text)) for text in each] for each in texts]
        times = self.weighing.fields.values()
        whole = _added(zip(by_word, times, strict=True))
        by_piece = _added(([Counter(pieces(text)) for text in each], n) for each, n in zip(texts, times, strict=True))
        singles = [
            counts
            for name, each in zip(self.weighing.fields, by_word, strict=True)
            for counts in each
            if name in _SINGLE
        ]
        return _Reading(
            count([whole], self._words), count(singles or [{}], self._words), count([by_piece], self._pieces)
        )

    def _weigh(self, readings: Sequence[_Reading]) -> None:
        import numpy as np

        whole = joined([reading.whole for reading in readings])
        singles = joined([reading.singles for reading in readings])
        in_pieces = joined([reading.pieces for reading in readings])
        self._by_word = Rarity(whole, self._words, self.weighing.gain)
        self._by_piece = Rarity(in_pieces, self._pieces)
        self._whole = Postings(whole, self._by_word.weights)
        self._singles = Postings(singles, self._by_word.weights)
        self._in_pieces = Postings(in_pieces, self._by_piece.weights)
        ends = np.cumsum([len(reading.singles.lengths) for reading in readings])
        self._first_single = np.concatenate(([0], ends[:-1]))


def _texts(pattern: Pattern, fields: Mapping[str, float]) -> Texts:
    """What a pattern says, by field."""
    every = {
        "name": (pattern.name.replace("_", " "),),
        "title": (pattern.title,),
        "intents": pattern.intents,
        "use_cases": pattern.use_cases,
        "description": (pattern.description,),
    }
    return tuple(every[name] for name in fields)


def _added(fields: Iterable[tuple[list[Counter[str]], float]]) -> dict[str, float]:
    """All counts together, each field's as many times over as is given with it."""
    total: dict[str, float] = {}
    for counted, times in fields:
        for term, value in chain.from_iterable(counts.items() for counts in counted if times):
            total[term] = total.get(term, 0.0) + times * value
    return total


def _by_words(text: str) -> list[str]:
    """Its words, pairs of words, and the meanings of its words."""
    found = terms(text)
    return found + [meaning for word in found for meaning in meanings(word)]


def _parts(asked: Vector, postings: Postings, position: int) -> dict[str, float]:
    """What each term adds to the cosine of a question and a row."""
    return dict(zip(asked.terms, postings.parts(asked, position).tolist(), strict=True))


def _meant(word: str) -> tuple[str, ...]:
    stem = stemmed(word)
    return (stem, *meanings(stem))
