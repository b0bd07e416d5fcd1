"""The ``memory`` of an agent's file: a profile, and single values in place of its own."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, TypeVar, get_args

from loom_worker.core.fields import Fields, present
from loom_worker.core.values.memory import MemoryPolicy, Shares, Spend

T = TypeVar("T", int, float)

PROFILES = {
    "balanced": MemoryPolicy(8, 4, None, 0.60, 0.75, (3, 5, 7)),
    "data_intensive": MemoryPolicy(5, 3, None, 0.50, 0.70, (2, 4, 6)),
    "conversational": MemoryPolicy(12, 6, None, 0.70, 0.85, (4, 6, 8)),
}
"""By ``workload_profile``; below the warning mark these go by the number of messages alone."""
BATCHES = (4, 6, 8)
"""Messages compressed at a time for a file that goes by the number of messages, or that sets some sizes only."""
MARKS: dict[str, Any] = {"normal_at": 0.70, "warning_at": 0.80, "critical_at": 0.85}
"""For such a file, whose L1 has its own share alone."""
_LEVELS = ("normal", "warning", "critical")
_LAYERS = ("rom", "kernel", "l1", "l2")


def policy(memory: Fields, *, by_number: bool = False) -> MemoryPolicy:
    """The rules a file sets; what it leaves out is its profile's, or the default's.

    Where two values must be in order, one that was not given yields to one that was.

    Args:
        by_number: the file limits the messages of L1 elsewhere.

    Raises:
        InvalidField: a value of the wrong type, or values that contradict each other.
    """
    compression = memory.under("memory_compression")
    profile = compression.choice("workload_profile", tuple(PROFILES))
    usual = PROFILES[profile] if profile else MemoryPolicy()
    least, most = _bounds(compression, usual)
    batches = _batches(compression.under("batch_sizes"), usual, by_number=most is not None)
    if profile is None and (by_number or batches is not None):
        usual = replace(usual, **MARKS)
    normal, warning, critical = _marks(compression, usual)
    return replace(
        usual,
        min_l1_messages=least,
        max_l1_messages=most,
        normal_at=normal,
        warning_at=warning,
        critical_at=critical,
        batches=batches,
        shares=_shares(compression.under("shares"), usual.shares),
        **present(
            max_l2_tokens=compression.whole("max_l2_tokens"),
            has_swap=memory.under("swap").flag("enabled"),
            spend=memory.choice("spend", get_args(Spend)),
        ),
    )


def _marks(compression: Fields, usual: MemoryPolicy) -> tuple[float | None, float, float]:
    """Shares of L1's allowance by level; the first is None if neither the file nor its profile has it."""
    keys = [f"{level}_threshold_percent" for level in _LEVELS]
    # Where a profile has no normal mark this stands in for it, and is seen by nobody.
    first = usual.warning_at if usual.normal_at is None else usual.normal_at
    given = {key: compression.percent(key) for key in keys}
    known = dict(zip(keys, (first, usual.warning_at, usual.critical_at), strict=True))
    normal, warning, critical = _rising(compression, given, known)
    is_by_number = usual.normal_at is None and given[keys[0]] is None
    return None if is_by_number else normal, warning, critical


def _bounds(compression: Fields, usual: MemoryPolicy) -> tuple[int, int | None]:
    """The least and the most messages of L1; no most where neither the file nor its profile has one."""
    given = {key: compression.whole(key) for key in ("min_l1_messages", "max_l1_messages")}
    if usual.max_l1_messages is None and given["max_l1_messages"] is None:
        return given["min_l1_messages"] or usual.min_l1_messages, None
    known = (usual.min_l1_messages, usual.max_l1_messages or usual.min_l1_messages)
    least, most = _rising(compression, given, dict(zip(given, known, strict=True)))
    return least, most


def _batches(sizes: Fields, usual: MemoryPolicy, *, by_number: bool) -> tuple[int, int, int] | None:
    """Messages by level; None (by tokens) if the file neither sets sizes nor goes by the number of messages."""
    given = {level: sizes.whole(level) for level in _LEVELS}
    known = dict(zip(_LEVELS, usual.batches or BATCHES, strict=True))
    normal, warning, critical = _rising(sizes, given, known)
    is_set = by_number or any(size is not None for size in given.values())
    return (normal, warning, critical) if is_set else None


def _shares(shares: Fields, usual: Shares) -> Shares:
    given = {layer: shares.percent(layer) for layer in _LAYERS}
    found = replace(usual, **present(**given))
    percents = {layer: round(100 * getattr(found, layer), 6) for layer in _LAYERS}
    if sum(percents.values()) > 100:
        listed = ", ".join(f"{layer} {percent:g}" for layer, percent in percents.items())
        raise shares.invalid(None, "at most 100 in all", listed)
    return found


def _rising(fields: Fields, values: Mapping[str, T | None], usual: Mapping[str, T]) -> list[T]:
    """Values none of which may be lower than the one before it.

    Args:
        values: by key, in order; None for one that is not given.
        usual: stands in for those, held between the given ones before and after it.
    """
    given: dict[str, T] = present(**values)
    for lower, higher in pairwise(given):
        if given[lower] > given[higher]:
            raise fields.invalid(higher, f"at least that of {lower} ({fields.get(lower)})", fields.get(higher))
    keys, rising = list(usual), []
    for at, key in enumerate(keys):
        value = usual[key]
        for below in keys[:at]:
            value = max(value, given.get(below, value))
        for above in keys[at:]:
            value = min(value, given.get(above, value))
        rising.append(given.get(key, value))
    return rising
