"""Figures out of samples. Pure."""

from collections.abc import Sequence


def percentile(values: Sequence[float], share: int) -> float:
    """The value that share percent are not above, the next higher one if there is none; of few values the highest.

    Raises:
        ValueError: there is no value at all.
    """
    if not values:
        raise ValueError("no percentile of nothing")
    return sorted(values)[min(len(values) - 1, len(values) * share // 100)]


def short(value: float) -> str:
    """A number for a table: three significant digits or more, no more than two behind the point."""
    digits = 0 if abs(value) >= 1000 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"
