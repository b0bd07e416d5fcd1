"""Which patterns fit a question: TF-IDF and cosine over what each pattern says of itself.

A pattern is met in two ways: by its nearest single text (a title, an intent) and by all its texts together. The
first alone follows chance words, the second alone drowns a good intent; their mean chose best on questions about
a shop. Words that no pattern uses count against a question, or "a joke about customers" would be all about
customers.
"""

from collections import Counter
from collections.abc import Iterable
from math import log, sqrt
from typing import Any

from loom_worker.patterns.words import terms
from loom_worker.values.patterns import Pattern, PatternMatch

_UNKNOWN_PAIR = 0.3
"""Weight of an unknown pair of words where an unknown word has 1: a new pair of known words is small news."""
_MOST_CHARS = 4000
"""Of a question; what matters is said before that, and a long paste must not cost more than a turn's other steps."""


class Matcher:
    """An index over a fixed set of patterns; building it loads scikit-learn. Any number of threads may ask it."""

    def __init__(self, patterns: Iterable[Pattern]) -> None:
        self._patterns = tuple(patterns)
        self._by_id = {pattern.id: pattern for pattern in self._patterns}
        self._index = _Index(self._patterns) if any(map(_whole_text, self._patterns)) else None

    def by_id(self, pattern_id: str) -> Pattern | None:
        """The pattern with this path-qualified id, or None."""
        return self._by_id.get(pattern_id)

    def ids(self) -> tuple[str, ...]:
        """The ids of all patterns, in the library's order."""
        return tuple(self._by_id)

    def match(self, question: str, k: int = 3) -> tuple[PatternMatch, ...]:
        """The best ``k`` patterns with a score above 0, best first; equal scores in the library's order."""
        if self._index is None:
            return ()
        best = self._index.best(terms(question[:_MOST_CHARS]), k)
        return tuple(PatternMatch(self._patterns[n], score, counted) for n, score, counted in best)


class _Index:
    """The vectors of all patterns; ids here are positions. Nothing is written after construction.

    scikit-learn weighs the patterns once; questions are met with its weights in plain dicts, for a handful of words
    does not pay for a sparse matrix (0.06 ms against 0.8 ms a question, same scores).
    """

    def __init__(self, patterns: tuple[Pattern, ...]) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer

        singles = [_single_texts(pattern) for pattern in patterns]
        vectorizer: Any = TfidfVectorizer(analyzer=_as_is, sublinear_tf=True)
        names: list[str] = []
        whole = vectorizer.fit_transform([_whole_text(pattern) for pattern in patterns])
        names += map(str, vectorizer.get_feature_names_out())
        single = vectorizer.transform([terms(text) for texts in singles for text in texts])
        self._idf: dict[str, float] = dict(zip(names, map(float, vectorizer.idf_), strict=True))
        self._whole = _postings(whole, names)
        self._single = _postings(single, names)
        self._owner = [n for n, texts in enumerate(singles) for _ in texts]
        self._rarest = log(1 + len(patterns)) + 1

    def best(self, asked: list[str], k: int) -> list[tuple[int, float, tuple[str, ...]]]:
        """Position, score (0-1) and the words that counted, of at most ``k`` patterns."""
        vector = self._vector(asked)
        together = _products(vector, self._whole)
        nearest: dict[int, float] = {}
        for text, product in _products(vector, self._single).items():
            owner = self._owner[text]
            nearest[owner] = max(nearest.get(owner, 0.0), product)
        share = self._known_share(asked)
        scores = {n: share * (nearest.get(n, 0.0) + together[n]) / 2 for n in together}
        order = sorted(scores, key=lambda n: (-scores[n], n))[:k]
        return [(n, scores[n], self._counted(vector, n)) for n in order if scores[n] > 0]

    def _vector(self, asked: list[str]) -> dict[str, float]:
        """The question as TF-IDF with sublinear counts, of length 1."""
        counts = Counter(term for term in asked if term in self._idf)
        weights = {term: (1 + log(count)) * self._idf[term] for term, count in counts.items()}
        length = sqrt(sum(weight**2 for weight in weights.values()))
        return {term: weight / length for term, weight in weights.items()}

    def _known_share(self, asked: list[str]) -> float:
        """The cosine between the question and the part of it that patterns speak of (0-1)."""
        known = unknown = 0.0
        for term in set(asked):
            if term in self._idf:
                known += self._idf[term] ** 2
            else:
                unknown += self._rarest**2 * (_UNKNOWN_PAIR if " " in term else 1.0)
        return sqrt(known / (known + unknown)) if known else 0.0

    def _counted(self, vector: dict[str, float], n: int) -> tuple[str, ...]:
        shared = sorted((-weight * self._whole[term].get(n, 0.0), term) for term, weight in vector.items())
        return tuple(term for product, term in shared if product < 0 and " " not in term)


def _postings(matrix: Any, names: list[str]) -> dict[str, dict[int, float]]:
    """Term to the rows that have it, with their weights."""
    found: dict[str, dict[int, float]] = {name: {} for name in names}
    coordinates = matrix.tocoo()
    for row, column, weight in zip(coordinates.row, coordinates.col, coordinates.data, strict=True):
        found[names[column]][int(row)] = float(weight)
    return found


def _products(vector: dict[str, float], postings: dict[str, dict[int, float]]) -> dict[int, float]:
    """Row to its cosine with the question; rows that share nothing are left out."""
    products: dict[int, float] = {}
    for term, weight in vector.items():
        for row, other in postings[term].items():
            products[row] = products.get(row, 0.0) + weight * other
    return products


def _single_texts(pattern: Pattern) -> list[str]:
    return [pattern.name.replace("_", " "), pattern.title, *pattern.intents, *pattern.use_cases]


def _whole_text(pattern: Pattern) -> list[str]:
    """All terms of a pattern; its names and intents twice, for they are shorter and truer than its description."""
    naming = [pattern.name.replace("_", " "), pattern.title, *pattern.intents]
    return [term for text in (*naming, *naming, *pattern.use_cases, pattern.description) for term in terms(text)]


def _as_is(document: list[str]) -> list[str]:
    return document
