"""Which patterns fit a question, and with what confidence."""

import logging
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp
from typing import TYPE_CHECKING, Protocol

from loom_worker.core.values.patterns import Pattern, PatternMatch
from loom_worker.core.words import stemmed
from loom_worker.patterns.aliases import BACKENDS
from loom_worker.patterns.index import Index, Texts
from loom_worker.patterns.words import FUNCTION_WORDS, meanings, words

if TYPE_CHECKING:
    from numpy import bool_, float64
    from numpy.typing import NDArray

log = logging.getLogger(__name__)

_HEAD_CHARS, _TAIL_CHARS = 800, 400
"""Characters of a question that are matched: people ask before or after what they paste, and a long paste must not
cost more."""
_CONTENDERS = 10
"""Candidates whose scores make the confidence."""
_SHOWN_PIECES = 3
DESCRIPTION_WEIGHT = 0.5
"""Weight of use cases and descriptions, which are about the pattern, against the words that people ask with."""
_SCORE_DIGITS = 6
"""Decimal places to which two scores must agree for the priority to decide."""

_QUERY = re.compile(r"\s*(?:--.*\n\s*)*(?:SELECT\s[^;]*\sFROM\s|select\s[^;]*\sfrom\s|(?i:with)\s+\w+\s+(?i:as)\s*\()")
"""The beginning of an SQL query; prose (``Select the best ones from``) does not write its keywords alike."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Coefficients of a choice among the candidates and "none of them" (a multinomial logit).

    A candidate weighs ``exp(steepness * score) - 1``, "none of them" ``exp(none + everyday * e)``, where e is how much
    the question is like everyday ones; the chance of each is its share of the sum. So a candidate far ahead of the
    second is more certain than one of two that are alike, and all chances together never exceed 1. The number of
    patterns has no part in it: its coefficient came out 0 when it was tried.
    """

    steepness: float
    none: float
    everyday: float = 0.0


FITTED = Calibration(steepness=17.83, none=8.9, everyday=4.63)
"""The most likely coefficients on the development questions, on parts of the library of 1 to 20 patterns, and on
intents of a public set, and on everyday questions; then more cautious, until at most 9 % of the questions without a
pattern reach one half, and 2 % of the everyday ones."""


def confidences(scores: Sequence[float], everyday: float = 0.0, *, by: Calibration = FITTED) -> list[float]:
    """The chance (0-1) of each candidate to be the right one, in order.

    Args:
        scores: 0-1, of the best candidates; those left out should be too weak to matter.
        everyday: likeness of the question to everyday ones, about -1 to 1.
    """
    weights = [exp(by.steepness * score) - 1 for score in scores]
    total = sum(weights) + exp(by.none + by.everyday * everyday)
    return [pull / total for pull in weights]


class IndexSource(Protocol):
    """Provides fitted indexes: this process, or files that all processes of a machine share."""

    def found(self, patterns: Sequence[Texts]) -> Index | None:
        """The index of patterns with these texts; None if it has to be fitted first."""

    def fitted(self, patterns: Sequence[Texts]) -> Index:
        """The same, however long it takes to fit."""


class InProcess:
    """Fits with scikit-learn in this process, which loads it (a second, 100 MB)."""

    def found(self, patterns: Sequence[Texts]) -> Index:
        """The index, newly fitted."""
        return self.fitted(patterns)

    def fitted(self, patterns: Sequence[Texts]) -> Index:
        """The index, newly fitted."""
        from loom_worker.patterns.fit import fit

        return fit(patterns)


class Matcher:
    """An index over a fixed set of patterns. Any number of threads may ask it."""

    def __init__(
        self, patterns: Iterable[Pattern], before: "Matcher | None" = None, *, index: IndexSource | None = None
    ) -> None:
        """Have the index fitted.

        Args:
            before: of an earlier state of the library; its index serves on where the patterns' texts are the same, and
                until a new one is fitted. None waits for the fit.
            index: where the fitted index comes from; unless given, scikit-learn in this process.
        """
        self.patterns = tuple(patterns)
        self._by_id = {pattern.id: pattern for pattern in self.patterns}
        self.texts = tuple(map(texts_of, self.patterns))
        self._of_kind: dict[str, NDArray[bool_]] = {}
        self._index: Index | None = None
        self._is_provisional = False
        self._fitting: threading.Thread | None = None
        if not self.patterns:
            return
        import numpy as np

        kinds = [_works_on(pattern) for pattern in self.patterns]
        self._of_kind = {kind: np.array([each == kind for each in kinds]) for kind in sorted(set(kinds))}
        source = index or InProcess()
        if before is None:
            self._index = source.found(self.texts) or source.fitted(self.texts)
        elif before.texts == self.texts and not before._is_provisional:
            self._index = before._index
        elif (found := source.found(self.texts)) is not None:
            self._index = found
        else:  # until the new index is fitted, the one before with the changed patterns put into it
            former = before._index or Index.empty(0)
            self._index, self._is_provisional = former.renewed(before.texts, self.texts), True
            self._fitting = threading.Thread(target=self._settle, args=(source,), name="loom-patterns-fit", daemon=True)
            self._fitting.start()

    def wait_fitted(self) -> None:
        """Wait until the index is no longer provisional, or cannot be fitted."""
        if self._fitting is not None:
            self._fitting.join()

    def _settle(self, source: IndexSource) -> None:
        try:
            self._index = source.fitted(self.texts)
            self._is_provisional = False
        except Exception:  # the top of a thread; the provisional index goes on serving
            log.exception("the changed patterns could not be fitted, and are matched by their texts alone")

    def by_id(self, pattern_id: str) -> Pattern | None:
        """The pattern with this path-qualified id, or None."""
        return self._by_id.get(pattern_id)

    def ids(self) -> tuple[str, ...]:
        """The ids of all patterns, in the library's order."""
        return tuple(self._by_id)

    def match(self, question: str, k: int = 3, *, kinds: frozenset[str] | None = None) -> tuple[PatternMatch, ...]:
        """The best ``k`` patterns with a score above 0, best first; equal ones by priority, then by id.

        Args:
            kinds: only patterns whose backend_type is one of these, empty, or unknown to Loom; None: all patterns.
        """
        if self._index is None:
            return ()
        index, excerpt = self._index, question
        if len(question) > _HEAD_CHARS + _TAIL_CHARS:
            excerpt = f"{question[:_HEAD_CHARS]} {question[-_TAIL_CHARS:]}"
        asked, asked_words = index.contributions(excerpt), words(excerpt)
        contenders = self._contenders(asked.scores(), kinds, max(k, _CONTENDERS))
        chances = confidences([score for _, score in contenders], asked.everyday)
        return tuple(
            PatternMatch(self.patterns[n], score, counted(asked_words, asked.parts(n)), chance)
            for (n, score), chance in zip(contenders[: max(k, 0)], chances, strict=False)
        )

    def _contenders(
        self, scores: "NDArray[float64]", kinds: frozenset[str] | None, most: int
    ) -> list[tuple[int, float]]:
        import numpy as np

        if kinds is not None:
            wanted = [has for kind, has in self._of_kind.items() if kind in kinds or not kind]
            scores = scores * np.logical_or.reduce(wanted) if wanted else np.zeros(len(scores))
        least = np.partition(scores, -most)[-most] if most < len(scores) else 0.0
        found = np.flatnonzero((scores > 0) & (scores >= least - 10**-_SCORE_DIGITS)).tolist()
        found.sort(
            key=lambda n: (-round(float(scores[n]), _SCORE_DIGITS), -self.patterns[n].priority, self.patterns[n].id)
        )
        return [(n, float(scores[n])) for n in found[:most]]


def _works_on(pattern: Pattern) -> str:
    """The backend type that a pattern needs; empty: none.

    A type that Loom does not know (workflow, code, a dialect) says nothing, but a template that is a query does.
    """
    if pattern.backend_type in BACKENDS:
        return pattern.backend_type
    return "sql" if any(_QUERY.match(template.text) for template in pattern.templates.values()) else ""


def texts_of(pattern: Pattern) -> Texts:
    """What a pattern says: what people ask counts in full, what is said about it less."""
    asked = dict.fromkeys((pattern.name.replace("_", " "), pattern.title, *pattern.intents))
    about = dict.fromkeys((*pattern.use_cases, pattern.description))
    return (*((text, 1.0) for text in asked if text), *((text, DESCRIPTION_WEIGHT) for text in about if text))


def counted(asked: Sequence[str], parts: Mapping[str, float]) -> tuple[str, ...]:
    """The question's words that raised a pattern's score, the weightiest first.

    Words of grammar, and pieces of words, are given only if there is nothing else.

    Args:
        parts: what each term adds to the score.
    """
    weights: dict[str, float] = {}
    for word in asked:
        stem = stemmed(word)
        weights[word] = sum(parts.get(term, 0.0) for term in (stem, *meanings(stem)))
    shared = sorted((word for word in weights if weights[word] > 0), key=lambda word: (-weights[word], word))
    telling = tuple(word for word in shared if word not in FUNCTION_WORDS)
    pieces = sorted(
        (term for term in parts if term[0] == "~" and parts[term] > 0), key=lambda term: (-parts[term], term)
    )
    return telling or tuple(shared) or tuple(piece[1:] for piece in pieces[:_SHOWN_PIECES])
