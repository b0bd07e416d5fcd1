"""Which patterns fit a question: TF-IDF and cosine over what each pattern says of itself.

A pattern is met in two ways: by its nearest single text (a title, an intent) and by all its texts together. The
first alone follows chance words, the second alone drowns a good intent; their mean chose best on questions about
a shop. Words that no pattern uses count against a question, or "a joke about customers" would be all about
customers.
"""

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
    """The vectors of all patterns; ids here are positions. Nothing is written after construction."""

    def __init__(self, patterns: tuple[Pattern, ...]) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer

        singles = [_single_texts(pattern) for pattern in patterns]
        self._vectorizer: Any = TfidfVectorizer(analyzer=_as_is, sublinear_tf=True)
        self._whole = self._vectorizer.fit_transform([_whole_text(pattern) for pattern in patterns])
        self._single = self._vectorizer.transform([terms(text) for texts in singles for text in texts])
        self._starts = [sum(map(len, singles[:n])) for n in range(len(singles))]
        self._names = self._vectorizer.get_feature_names_out()
        self._rarest = log(1 + len(patterns)) + 1

    def best(self, asked: list[str], k: int) -> list[tuple[int, float, tuple[str, ...]]]:
        """Position, score (0-1) and the words that counted, of at most ``k`` patterns."""
        from numpy import maximum

        vector = self._vectorizer.transform([asked])
        nearest = maximum.reduceat((self._single @ vector.T).toarray().ravel(), self._starts)
        together = (self._whole @ vector.T).toarray().ravel()
        scores = self._known_share(asked) * (nearest + together) / 2
        order = (-scores).argsort(kind="stable")[:k]
        return [(int(n), float(scores[n]), self._counted(vector, n)) for n in order if scores[n] > 0]

    def _known_share(self, asked: list[str]) -> float:
        """The cosine between the question and the part of it that patterns speak of (0-1)."""
        known = unknown = 0.0
        for term in set(asked):
            column = self._vectorizer.vocabulary_.get(term)
            if column is not None:
                known += self._vectorizer.idf_[column] ** 2
            else:
                unknown += self._rarest**2 * (_UNKNOWN_PAIR if " " in term else 1.0)
        return sqrt(known / (known + unknown)) if known else 0.0

    def _counted(self, vector: Any, n: int) -> tuple[str, ...]:
        asked = dict(zip(vector.indices, vector.data, strict=True))
        row = slice(*self._whole.indptr[n : n + 2])
        weights = zip(self._whole.indices[row], self._whole.data[row], strict=True)
        shared = sorted((-weight * asked[column], self._names[column]) for column, weight in weights if column in asked)
        return tuple(str(name) for _, name in shared if " " not in name)


def _single_texts(pattern: Pattern) -> list[str]:
    return [pattern.name.replace("_", " "), pattern.title, *pattern.intents, *pattern.use_cases]


def _whole_text(pattern: Pattern) -> list[str]:
    """All terms of a pattern; its names and intents twice, for they are shorter and truer than its description."""
    naming = [pattern.name.replace("_", " "), pattern.title, *pattern.intents]
    return [term for text in (*naming, *naming, *pattern.use_cases, pattern.description) for term in terms(text)]


def _as_is(document: list[str]) -> list[str]:
    return document
