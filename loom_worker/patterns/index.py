"""The vectors of texts: TF-IDF with sublinear counts and cosine, as scikit-learn has them, in a few numpy arrays.

Terms go by numbers. What a text says is counted once, as rows of numbers; weighing all rows anew, which every change
of the library asks for, is then a matter of array arithmetic.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from math import log, sqrt
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numpy import float64, intp
    from numpy.typing import NDArray

    Floats = NDArray[float64]
    Numbers = NDArray[intp]


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """How often each of some texts says its terms, one text after the other."""

    numbers: "Numbers"
    """Of the terms, each once in a row."""
    counts: "Floats"
    """1 or more."""
    lengths: "Numbers"
    """How many terms each row has."""


@dataclass(frozen=True, slots=True, eq=False)
class Vector:
    """A question as the index sees it, of length 1 unless no term is known."""

    terms: tuple[str, ...]
    """Those that the index knows, each once."""
    numbers: "Numbers"
    """Of the terms, in their order."""
    weights: "Floats"
    known: float
    """The cosine between the question and the part of it that the index knows (0-1)."""


def count(texts: Iterable[Mapping[str, float]], numbers: dict[str, int]) -> Rows:
    """Write texts, each given as its terms with their counts, as rows; terms that are new get the next number."""
    import numpy as np

    rows = list(texts)
    terms = [numbers.setdefault(term, len(numbers)) for row in rows for term in row]
    counts = [value for row in rows for value in row.values()]
    return Rows(np.array(terms, np.intp), np.array(counts, np.float64), np.array([len(row) for row in rows], np.intp))


def joined(parts: Sequence[Rows]) -> Rows:
    """All rows of all parts (at least one), in order."""
    import numpy as np

    return Rows(
        np.concatenate([part.numbers for part in parts]),
        np.concatenate([part.counts for part in parts]),
        np.concatenate([part.lengths for part in parts]),
    )


class Rarity:
    """What each term weighs: the fewer rows say it the more (smoothed inverse document frequency), times a gain."""

    def __init__(self, rows: Rows, numbers: Mapping[str, int], gain: Callable[[str], float] | None = None) -> None:
        """``gain`` (0 or more) of a term is 1 unless given."""
        import numpy as np

        said_by = np.bincount(rows.numbers, minlength=len(numbers))
        gains = np.ones(len(numbers)) if gain is None else np.fromiter(map(gain, numbers), np.float64, len(numbers))
        inverse = np.log((1 + len(rows.lengths)) / (1 + said_by)) + 1
        self.weights: Floats = np.append(np.where(said_by > 0, inverse * gains, 0.0), 0.0)
        """By number; 0 for terms that no row says any more, and in the end for those without a number."""
        self._numbers = numbers
        self._gain = gain
        self._rarest = log(1 + len(rows.lengths)) + 1

    def share_in_use(self) -> float:
        """Of all numbered terms, those that some row says (0-1)."""
        import numpy as np

        return float(np.count_nonzero(self.weights)) / max(1, len(self._numbers))

    def vector(self, terms: Iterable[str], *, unknown: float = 1.0, unknown_pair: float = 1.0) -> Vector:
        """Weigh a question.

        Args:
            unknown: what a term that no row says counts against the question; 1: as much as one that a single row says.
            unknown_pair: the same for a pair of words, on top.
        """
        import numpy as np

        counts = Counter(terms)
        numbers = np.fromiter((self._numbers.get(term, -1) for term in counts), np.intp, len(counts))
        rarity = self.weights[numbers]
        is_known = rarity > 0
        terms_known = tuple(compress(counts, is_known.tolist()))
        against = unknown * sum(self._against(term, unknown_pair) for term in compress(counts, (~is_known).tolist()))
        rarity = rarity[is_known]
        weights = rarity * (1 + np.log(np.fromiter(map(counts.__getitem__, terms_known), np.float64, len(rarity))))
        length, told = sqrt(float(weights @ weights)), float(rarity @ rarity)
        known = sqrt(told / (told + against)) if told else 0.0
        return Vector(terms_known, numbers[is_known], weights / (length or 1.0), known)

    def _against(self, term: str, unknown_pair: float) -> float:
        gain = self._gain(term) if self._gain else 1.0
        return (self._rarest * gain) ** 2 * (unknown_pair if " " in term else 1.0)


class Postings:
    """Rows of length 1 turned around: for each term the rows that say it, with their weights."""

    def __init__(self, rows: Rows, rarity: "Floats") -> None:
        import numpy as np

        row_of = np.repeat(np.arange(len(rows.lengths)), rows.lengths)
        weights = (1 + np.log(rows.counts)) * rarity[rows.numbers]
        lengths = np.sqrt(np.bincount(row_of, weights**2, minlength=len(rows.lengths)))
        weights /= np.where(lengths > 0, lengths, 1.0)[row_of]
        order = _order(rows.numbers)
        self._count = len(rows.lengths)
        self._rows: Numbers = row_of[order]
        self._weights: Floats = weights[order]
        ends = np.cumsum(np.bincount(rows.numbers, minlength=len(rarity)))
        self._starts: Numbers = np.concatenate(([0], ends))

    def cosines(self, asked: Vector) -> "Floats":
        """The cosine (0-1) between a question and each row."""
        import numpy as np

        at, lengths = self._places(asked.numbers)
        products = self._weights[at] * np.repeat(asked.weights, lengths)
        return np.asarray(np.bincount(self._rows[at], products, minlength=self._count), np.float64)

    def parts(self, asked: Vector, row: int) -> "Floats":
        """What each term of the question adds to its cosine with one row, in the question's order."""
        import numpy as np

        at, lengths = self._places(asked.numbers)
        products = self._weights[at] * np.repeat(asked.weights, lengths) * (self._rows[at] == row)
        term_of = np.repeat(np.arange(len(lengths)), lengths)
        return np.asarray(np.bincount(term_of, products, minlength=len(lengths)), np.float64)

    def _places(self, numbers: "Numbers") -> tuple["Numbers", "Numbers"]:
        """Where the rows of these terms stand, and how many each term has."""
        import numpy as np

        starts = self._starts[numbers]
        lengths = self._starts[numbers + 1] - starts
        ends = np.cumsum(lengths)
        return np.repeat(starts - ends + lengths, lengths) + np.arange(int(lengths.sum())), lengths


def _order(numbers: "Numbers") -> "Numbers":
    """Where each number stands once they are sorted, equal ones as they came; numbers from 0 to 2**32.

    By halves of 16 bits, which numpy sorts by counting: a third of the time for a million numbers.
    """
    import numpy as np

    low = np.argsort((numbers & 0xFFFF).astype(np.uint16), kind="stable")
    return low[np.argsort((numbers[low] >> 16).astype(np.uint16), kind="stable")]
