"""The fitted index as a few arrays: what scikit-learn learned about the patterns, used with numpy alone."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loom_worker.patterns.words import FUNCTION_WORDS, meanings, pieces, terms

if TYPE_CHECKING:
    from numpy import float64, int64
    from numpy.typing import NDArray

    Floats = NDArray[float64]
    Numbers = NDArray[int64]

Texts = tuple[tuple[str, float], ...]
"""What a pattern says: each text with its weight (0-1)."""

PAIR, MEANING, FUNCTION_WORD = 0.6, 0.9, 0.5
"""What a pair of words, a meaning that several words share, and a word of grammar weigh against another word's 1."""
UNKNOWN_PAIR = 0.3
"""Factor on a new pair of known words, which matters less than a new word."""
OWN = 0.62
"""Median score of a pattern's own texts if a model was learned. A document without one is scaled to that, so that its
confidence means the same."""
LEAST_ASKED = 6
"""Texts of full weight that make a pattern with a description one to learn: name, title and four intents."""
HALF = sqrt(0.5)
"""Words and pieces of words have the same weight, and together length 1."""

_DIGITS = 9
"""Decimal places of a score; further ones depend on the order of the patterns."""
_ARRAYS = ("rarity", "starts", "columns", "values", "everyday")


def word_terms(text: str) -> list[str]:
    """The terms of a text: words, pairs of words, and the meanings of its words (``=customer.0``)."""
    found = terms(text)
    return found + [meaning for word in found for meaning in meanings(word)]


def piece_terms(text: str) -> list[str]:
    """The pieces of its words, marked as such (``~ ord``): a word of four letters is not its own piece."""
    return [f"~{piece}" for piece in pieces(text)]


def is_learned(texts: Texts) -> bool:
    """Whether a model is learned: beside a description, a few questions would teach it noise, as would none."""
    asked = sum(weight == 1.0 for _, weight in texts)
    return asked >= LEAST_ASKED or 1 < asked == len(texts)


def document(texts: Texts) -> tuple[str, ...]:
    """All that a pattern says, for counting: texts of full weight twice if a model is learned."""
    twice = is_learned(texts)
    return tuple(text for text, weight in texts for _ in range(1 + (twice and weight == 1.0)))


def gain(term: str) -> float:
    """The factor on a term's rarity."""
    if term.startswith("~"):
        return 1.0
    if " " in term:
        return PAIR
    if term.startswith("="):
        return MEANING
    return FUNCTION_WORD if term in FUNCTION_WORDS else 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Vector:
    """A question in terms of the index; what no pattern says makes it shorter than 1."""

    terms: tuple[str, ...]
    """The terms that the index knows, each once."""
    numbers: "Numbers"
    weights: "Floats"


@dataclass(frozen=True, slots=True, eq=False)
class Contributions:
    """What each term of a question adds to the score of each pattern that has a coefficient for it."""

    terms: tuple[str, ...]
    places: "Numbers"
    """The place of the term of each sum that is added."""
    columns: "Numbers"
    """And the position of its pattern."""
    added: "Floats"
    count: int
    """Number of the patterns."""
    everyday: float
    """How much the question is like everyday ones (about 1) or like the library's texts (about -1)."""

    def scores(self) -> "Floats":
        """How well each pattern fits (0-1)."""
        import numpy as np

        scores = np.bincount(self.columns, self.added, minlength=self.count)
        return np.clip(np.round(scores, _DIGITS), 0.0, 1.0)

    def parts(self, position: int) -> dict[str, float]:
        """What each term adds to the score of one pattern, or takes from it; terms that do neither are left out."""
        import numpy as np

        of_pattern = np.flatnonzero(self.columns == position)
        terms = (self.terms[place] for place in self.places[of_pattern].tolist())
        return dict(zip(terms, self.added[of_pattern].tolist(), strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class Index:
    """Linear models of patterns over terms. Nothing is written after construction; any thread may ask."""

    numbers: dict[str, int]
    """The terms' numbers: words, and pieces of words."""
    rarity: "Floats"
    """What each term weighs: smoothed inverse document frequency times its gain."""
    starts: "Numbers"
    """Where the coefficients of each term begin; one more than there are terms."""
    columns: "Numbers"
    """The position of each coefficient's pattern."""
    values: "Floats"
    rarest: float
    """What a term of gain 1 that no text says would weigh."""
    count: int
    """Number of the patterns."""
    everyday: "Floats"
    """What each term adds to the likeness of a question to everyday ones."""

    @classmethod
    def of(
        cls, vocabulary: Sequence[str], rarity: "Floats", coefficients: Any, *, rarest: float, least: float
    ) -> "Index":
        """Keep those coefficients, terms by patterns, that reach ``least``."""
        import numpy as np
        from scipy.sparse import csr_matrix

        kept = csr_matrix(coefficients)
        count = kept.shape[1]
        kept.data[np.abs(kept.data) < least] = 0.0
        kept.eliminate_zeros()
        numbers = {term: number for number, term in enumerate(vocabulary)}
        starts, columns = kept.indptr.astype(np.int64), kept.indices.astype(np.int32)
        values, everyday = kept.data.astype(np.float64), np.zeros(len(numbers))
        return cls(numbers, rarity, starts, columns, values, rarest, count, everyday)

    @classmethod
    def empty(cls, count: int) -> "Index":
        """An index of patterns that say nothing."""
        import numpy as np

        none = np.zeros(0)
        return cls({}, none, np.zeros(1, np.int64), np.zeros(0, np.int64), none, 1.0, count, none)

    @classmethod
    def read(cls, folder: Path) -> "Index":
        """Map what ``write`` wrote; processes share its pages.

        Raises:
            OSError: a file cannot be read.
            ValueError: a file is not what it should be.
        """
        import numpy as np

        facts = json.loads((folder / "terms.json").read_text("utf-8"))
        mapped = [np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in _ARRAYS]
        rarity, starts, columns, values, everyday = (np.asarray(array) for array in mapped)  # a view: quicker to ask
        numbers = {term: number for number, term in enumerate(facts["terms"])}
        return cls(numbers, rarity, starts, columns, values, facts["rarest"], facts["count"], everyday)

    def write(self, folder: Path) -> None:
        """Write into a folder that exists; OSError: the disk is full, or not to be written."""
        import numpy as np

        facts = {"terms": list(self.numbers), "rarest": self.rarest, "count": self.count}
        (folder / "terms.json").write_text(json.dumps(facts), "utf-8")
        for name in _ARRAYS:
            np.save(folder / f"{name}.npy", getattr(self, name), allow_pickle=False)

    def renewed(self, before: Sequence[Texts], after: Sequence[Texts]) -> "Index":
        """This index for other patterns: those that said the same keep their models, new ones are taken as documents.

        Args:
            before: what the patterns of this index say.
            after: what those of the new one say.
        """
        import numpy as np

        free = {texts: position for position, texts in enumerate(before)}
        moved = np.full(max(self.count, 1), -1)
        fresh = []
        for position, texts in enumerate(after):
            if (old := free.pop(texts, None)) is None:
                fresh.append((position, texts))
            else:
                moved[old] = position
        rows = np.repeat(np.arange(len(self.numbers)), np.diff(self.starts))
        columns = moved[self.columns]
        grown = self._grown(texts for _, texts in fresh)
        made = [(position, *grown._document(texts)) for position, texts in fresh]
        all_rows = np.concatenate([rows[columns >= 0], *(numbers for _, numbers, _ in made)])
        all_columns = np.concatenate([columns[columns >= 0], *(np.full(len(v), position) for position, _, v in made)])
        all_values = np.concatenate([self.values[columns >= 0], *(values for _, _, values in made)])
        order = np.argsort(all_rows, kind="stable")
        starts = np.concatenate(([0], np.cumsum(np.bincount(all_rows, minlength=len(grown.numbers)))))
        return replace(grown, starts=starts, columns=all_columns[order], values=all_values[order], count=len(after))

    def _grown(self, patterns: Iterable[Texts]) -> "Index":
        """With the terms that are new, as if one text said each; their coefficients are still to come."""
        import numpy as np

        numbers = dict(self.numbers)
        for term in (
            term for texts in patterns for text, _ in texts for term in (*word_terms(text), *piece_terms(text))
        ):
            numbers.setdefault(term, len(numbers))
        new = [self.rarest * gain(term) for term in list(numbers)[len(self.numbers) :]]
        everyday = np.concatenate([self.everyday, np.zeros(len(new))])
        return replace(self, numbers=numbers, rarity=np.concatenate([self.rarity, new]), everyday=everyday)

    def _document(self, texts: Texts) -> "tuple[Numbers, Floats]":
        """A model without learning: the terms of all that a pattern says, with their weights."""
        import numpy as np

        whole = document(texts)
        halves = [
            self._half(Counter(term for text in whole for term in cut(text))) for cut in (word_terms, piece_terms)
        ]
        numbers, weights = (np.concatenate([half[part] for half in halves]) for part in (1, 2))
        row = np.zeros(len(self.numbers))
        row[numbers] = weights
        scores = [float(row[each.numbers] @ each.weights) for each in (self.vector(text) for text, _ in texts)]
        return numbers, weights * (OWN * len(scores) / (sum(scores) or 1.0))

    def vector(self, question: str) -> Vector:
        """Weigh a question as scikit-learn weighs a text, then shorten it by what no pattern says."""
        import numpy as np

        halves = [self._half(Counter(word_terms(question))), self._half(Counter(piece_terms(question)))]
        return Vector(
            tuple(term for terms_known, _, _ in halves for term in terms_known),
            np.concatenate([numbers for _, numbers, _ in halves]),
            np.concatenate([weights for _, _, weights in halves]),
        )

    def contributions(self, question: str) -> Contributions:
        """What a question adds to the score of each pattern."""
        import numpy as np

        vector = self.vector(question)
        starts = self.starts[vector.numbers]
        lengths = self.starts[vector.numbers + 1] - starts
        ends = np.cumsum(lengths)
        at = np.repeat(starts - ends + lengths, lengths) + np.arange(ends[-1] if len(ends) else 0)
        places = np.repeat(np.arange(len(lengths)), lengths)
        added = self.values[at] * vector.weights[places]
        everyday = round(float(self.everyday[vector.numbers] @ vector.weights), _DIGITS)
        return Contributions(vector.terms, places, self.columns[at], added, self.count, everyday)

    def _half(self, counts: Counter[str]) -> "tuple[list[str], Numbers, Floats]":
        """Term, number and weight of what is known of the words, or of the pieces; as long at most as HALF."""
        import numpy as np

        known = [term for term in counts if term in self.numbers]
        numbers = np.fromiter((self.numbers[term] for term in known), np.int64, len(known))
        rarity = self.rarity[numbers]
        weights = rarity * (1 + np.log(np.fromiter((counts[term] for term in known), np.float64, len(known))))
        found, length = float(rarity @ rarity), sqrt(float(weights @ weights))
        unknown = sum(
            float((self.rarest * gain(term)) ** 2 * (UNKNOWN_PAIR if " " in term else 1.0))
            for term in counts
            if term not in self.numbers
        )
        return known, numbers, weights * (HALF * sqrt(found / (found + unknown)) / length if found else 0.0)
