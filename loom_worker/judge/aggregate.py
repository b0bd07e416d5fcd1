"""From the verdicts of a panel to one score, by the panel's strategy. Pure, and in exact fractions.

What a dead judge means depends on its criticality: a ``non_critical`` one is left out, a ``critical`` one counts as 0,
and without a ``safety_critical`` one no answer passes. A safety-critical judge that lives has a veto: an answer that
it scores below the threshold does not pass, whatever the strategy makes of the others. Undecided ones are left out.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from statistics import median

from loom_worker.core.values.judges import SCORE_DIGITS, Judgement, Panel, Strategy, Verdict

Weighed = tuple[Fraction, Fraction]
"""A score and its weight."""


def judgement(verdicts: Sequence[Verdict], panel: Panel) -> Judgement:
    """What the verdicts on an answer come to; none of them is open any more."""
    threshold = _exact(panel.threshold)
    counted = [
        (_exact(verdict.score or 0.0), _exact(verdict.weight))
        for verdict in verdicts
        if verdict.score is not None or (verdict.is_dead and verdict.criticality != "non_critical")
    ]
    withheld_for = next((verdict.name for verdict in verdicts if _objects(verdict, panel.threshold)), None)
    if not counted:
        return Judgement(None, None)
    if panel.strategy == "vote":
        score = Fraction(sum(each >= threshold for each, _ in counted), len(counted))
        passed = score > Fraction(1, 2)
    else:
        score = _STRATEGIES[panel.strategy](counted)
        passed = score >= threshold
    return Judgement(round(float(score), SCORE_DIGITS), passed and withheld_for is None, withheld_for)


def _objects(verdict: Verdict, threshold: float) -> bool:
    is_low = verdict.score is not None and verdict.score < threshold
    return verdict.criticality == "safety_critical" and (verdict.is_dead or is_low)


def _exact(number: float) -> Fraction:
    """The decimal that a number is written as: three times 0.7 have a mean of 0.7, in binary fractions they do not."""
    return Fraction(repr(float(number)))


def _weighted(counted: Sequence[Weighed]) -> Fraction:
    total = sum((weight for _, weight in counted), Fraction())
    return sum((score * weight for score, weight in counted), Fraction()) / total


_STRATEGIES: dict[Strategy, Callable[[Sequence[Weighed]], Fraction]] = {
    "mean": lambda counted: sum((score for score, _ in counted), Fraction()) / len(counted),
    "median": lambda counted: median(score for score, _ in counted),
    "min": lambda counted: min(score for score, _ in counted),
    "max": lambda counted: max(score for score, _ in counted),
    "weighted": _weighted,
}
