"""How the outcomes of earlier turns change a pattern's rank among similar candidates. Pure.

A factor on the score, between 0.9 and 1.1: it decides close calls and cannot raise a pattern that does not fit.
"""

from collections.abc import Iterable, Mapping

from loom_worker.core.values.patterns import Effect, Pattern

LEAST_JUDGED = 10
"""Turns that succeeded or failed before a pattern's outcomes count at all."""
PRIOR_TURNS = 10
"""Turns of typical outcome that are added to each pattern's own (the weight of the Beta prior): after ten turns the
observed rate counts half, after ninety turns nine tenths."""
GAIN = 0.5
"""Factor per unit of rate: 20 points better than typical adds 10 %, which is also the maximum."""
LEAST, MOST = 0.9, 1.1
EVEN = 0.5
"""The typical rate where no turn was judged."""

Effects = Mapping[tuple[str, str], Effect]
"""By pattern id and digest of its text."""


def judged(effect: Effect) -> int:
    """Turns that succeeded or failed."""
    return effect.succeeded + effect.failed


def typical_rate(effects: Effects) -> float:
    """The share (0-1) of judged turns that succeeded, over all patterns of a workspace."""
    turns = sum(map(judged, effects.values()))
    return sum(effect.succeeded for effect in effects.values()) / turns if turns else EVEN


def boost(effect: Effect, typical: float) -> float:
    """The factor on a pattern's score, LEAST to MOST; 1 while fewer than LEAST_JUDGED turns were judged.

    Args:
        typical: the workspace's rate of success, 0-1; a pattern with that rate has the factor 1.
    """
    turns = judged(effect)
    if turns < LEAST_JUDGED:
        return 1.0
    better = (effect.succeeded - turns * typical) / (turns + PRIOR_TURNS)  # the smoothed rate, less the typical one
    return min(MOST, max(LEAST, 1 + GAIN * better))


def boosts(patterns: Iterable[Pattern], effects: Effects) -> dict[str, float]:
    """Pattern id to its factor, where that is not 1; only outcomes of the text as it reads now count."""
    typical = typical_rate(effects)
    known = ((each.id, effects.get((each.id, each.digest))) for each in patterns)
    factors = {pattern_id: boost(effect, typical) for pattern_id, effect in known if effect is not None}
    return {pattern_id: factor for pattern_id, factor in factors.items() if factor != 1.0}


def why(effect: Effect, factor: float, typical: float | None = None) -> str:
    """One line that explains a factor to a person.

    Args:
        typical: the rate it was measured against; None leaves it out.
    """
    turns = judged(effect)
    if not turns:
        return f"no turn that used it was judged: ×{factor:.2f}"
    rate = f"worked in {effect.succeeded:,} of {turns:,} turns, {100 * effect.succeeded / turns:.0f} %"
    if turns < LEAST_JUDGED:
        return f"{rate}; fewer than {LEAST_JUDGED} say nothing yet: ×{factor:.2f}"
    others = "" if typical is None else f"; all patterns {100 * typical:.0f} %"
    return f"{rate}{others}: ×{factor:.2f}"
