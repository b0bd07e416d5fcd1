"""Several rankings of the same things become one: reciprocal rank fusion. Pure."""

from collections.abc import Hashable, Sequence
from typing import TypeVar

Thing = TypeVar("Thing", bound=Hashable)

K = 60
"""How little the first places differ: the constant of Cormack, Clarke and Büttcher, "Reciprocal rank fusion outperforms
Condorcet and individual rank learning methods", SIGIR 2009, who found that its exact value matters little."""


def fused(rankings: Sequence[Sequence[Thing]], *, k: int = K) -> list[tuple[Thing, float]]:
    """All things of some rankings with their scores, the best first.

    Each ranking gives a thing 1 / (k + its place, from 1); what it does not hold gets nothing from it. Scores of the
    rankings themselves play no part, for they have no common scale. Of equals, what an earlier ranking has comes first.

    Args:
        rankings: each with the best first, and no thing twice.
    """
    scores: dict[Thing, float] = {}
    for ranking in rankings:
        for place, thing in enumerate(ranking, 1):
            scores[thing] = scores.get(thing, 0.0) + 1.0 / (k + place)
    return sorted(scores.items(), key=lambda item: -item[1])
