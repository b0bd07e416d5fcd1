"""From how alike a question and the patterns are to the chance that a pattern is the right one."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp


@dataclass(frozen=True, slots=True)
class Calibration:
    """Coefficients of a choice among the candidates and "none of them" (a multinomial logit).

    A candidate pulls with ``exp(steepness * score) - 1``, none of them with ``exp(none)``; the chance of each is its
    share of all pulls. So a candidate far ahead of the second is surer than one of two that are alike, and all chances
    together never exceed 1. How many patterns there are changes nothing: it was tried, and its coefficient came out 0.
    """

    steepness: float
    none: float


FITTED = Calibration(steepness=21.27, none=6.83)
"""Most likely on the development questions, on parts of the library of 1 to 20 patterns, and on intents of a public
set, then so cautious that of the questions without a pattern at most 9 % reach one half in either, and by a margin:
``python -m bench.matching --fit``."""


def confidences(scores: Sequence[float], *, by: Calibration = FITTED) -> list[float]:
    """The chance (0-1) of each candidate to be the right one, in order.

    Args:
        scores: 0-1, of the best candidates; those left out should be so weak that they do not matter.
    """
    pulls = [exp(by.steepness * score) - 1 for score in scores]
    total = sum(pulls) + exp(by.none)
    return [pull / total for pull in pulls]
