"""Which patterns fit a question, and how sure that is."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from loom_worker.patterns import effect
from loom_worker.patterns.aliases import BACKENDS
from loom_worker.patterns.calibrate import confidences
from loom_worker.patterns.match_views import Alike, Views, Weighing
from loom_worker.values.patterns import Pattern, PatternMatch

if TYPE_CHECKING:
    from numpy import bool_
    from numpy.typing import NDArray

_HEAD_CHARS, _TAIL_CHARS = 800, 400
"""Of a question; what is asked stands before or behind what is pasted, and a long paste must not cost more."""
_CONTENDERS = 10
"""Candidates whose scores make the confidence, and among which boosts may change the order."""
_SAME = 6
"""Digits behind the point to which two scores must agree for the priority to decide."""


class Matcher:
    """An index over a fixed set of patterns; building it loads numpy. Any number of threads may ask it."""

    def __init__(
        self, patterns: Iterable[Pattern], before: "Matcher | None" = None, *, weighing: Weighing | None = None
    ) -> None:
        """Build the index.

        Args:
            before: of an earlier state of the library; what its patterns say is not read anew where it is the same.
            weighing: how much each idea counts, to measure them; unless given, that of ``before`` or the usual one.
        """
        self.patterns = tuple(patterns)
        self._by_id = {pattern.id: pattern for pattern in self.patterns}
        self._views: Views | None = None
        self._of_kind: dict[str, NDArray[bool_]] = {}
        if self.patterns:
            self._views = Views(self.patterns, weighing or Weighing(), before._views if before else None)
            self._of_kind = _by_kind(self.patterns)

    def by_id(self, pattern_id: str) -> Pattern | None:
        """The pattern with this path-qualified id, or None."""
        return self._by_id.get(pattern_id)

    def ids(self) -> tuple[str, ...]:
        """The ids of all patterns, in the library's order."""
        return tuple(self._by_id)

    def match(
        self,
        question: str,
        k: int = 3,
        *,
        kinds: frozenset[str] | None = None,
        boosts: Mapping[str, float] | None = None,
    ) -> tuple[PatternMatch, ...]:
        """The best ``k`` patterns with a score above 0, best first; equal ones by priority, then by id.

        Args:
            kinds: only patterns whose backend_type is one of these, empty, or unknown to Loom; None: all patterns.
            boosts: id to a factor (kept within 0.9-1.1) that may change a candidate's place, not its score.
        """
        if self._views is None:
            return ()
        views, allowed = self._views, self._allowed(kinds)
        alike = views.alike(_excerpt(question))
        contenders = self._contenders(alike, allowed, max(k, _CONTENDERS))
        chances = confidences([score for _, score in contenders])
        factors = [_bounded((boosts or {}).get(self.patterns[n].id, 1.0)) for n, _ in contenders]
        found = [
            (PatternMatch(self.patterns[n], score, confidence=chance, boost=factor), n)
            for (n, score), chance, factor in zip(contenders, chances, factors, strict=True)
        ]
        found.sort(key=lambda each: -round(each[0].score * each[0].boost, _SAME))
        return tuple(replace(match, terms=views.counted(alike, n)) for match, n in found[: max(k, 0)])

    def _contenders(self, alike: Alike, allowed: "NDArray[bool_]", most: int) -> list[tuple[int, float]]:
        """Position and score of the best patterns, best first."""
        import numpy as np

        scores = alike.scores * allowed
        least = np.partition(scores, -most)[-most] if most < len(scores) else 0.0
        found = np.flatnonzero((scores > 0) & (scores >= least - 10**-_SAME)).tolist()
        return sorted(((n, float(scores[n])) for n in found), key=self._place)[:most]

    def _place(self, contender: tuple[int, float]) -> tuple[float, int, str]:
        position, score = contender
        pattern = self.patterns[position]
        return (-round(score, _SAME), -pattern.priority, pattern.id)

    def _allowed(self, kinds: frozenset[str] | None) -> "NDArray[bool_]":
        import numpy as np

        wanted = [has for kind, has in self._of_kind.items() if kinds is None or kind in kinds or not kind]
        return np.logical_or.reduce(wanted) if wanted else np.zeros(len(self.patterns), np.bool_)


def _by_kind(patterns: tuple[Pattern, ...]) -> "dict[str, NDArray[bool_]]":
    import numpy as np

    # A type that Loom does not know (workflow, code) says nothing of what the agent works on.
    kinds = [pattern.backend_type if pattern.backend_type in BACKENDS else "" for pattern in patterns]
    return {kind: np.array([each == kind for each in kinds]) for kind in sorted(set(kinds))}


def _excerpt(question: str) -> str:
    if len(question) <= _HEAD_CHARS + _TAIL_CHARS:
        return question
    return f"{question[:_HEAD_CHARS]} {question[-_TAIL_CHARS:]}"


def _bounded(boost: float) -> float:
    return min(max(boost, effect.LEAST), effect.MOST)
