"""Which patterns took part in a turn, and whether it then succeeded. Pure."""

from collections.abc import Callable, Sequence

from loom_worker.core.values.json import Json
from loom_worker.core.values.patterns import PatternUse
from loom_worker.core.values.turns import Ending
from loom_worker.turn.state import TurnState

LOADS = "load_pattern"
"""The tool by which a model asks for a pattern itself."""
NOT_THEIRS = frozenset({"provider", "dead", "budget", "deadline"})
"""Reasons for a failure that no pattern can have brought about."""


def patterns_of(work: TurnState, version_of: Callable[[str], str | None]) -> tuple[Json, ...]:
    """The patterns beside the question, then those that the model asked for; each once.

    Args:
        version_of: gives the digest of a pattern's text as it reads now; None where there is none any more.
    """
    known = {str(pattern["id"]) for pattern in work.patterns}
    asked = [str(call.arguments.get("id")) for call in work.calls if call.name == LOADS and call.status == "completed"]
    loaded = [pattern_id for pattern_id in dict.fromkeys(asked) if pattern_id not in known]
    versions = {pattern_id: version_of(pattern_id) for pattern_id in loaded}
    more = [
        {"id": pattern_id, "score": None, "version": version, "how": "loaded"}
        for pattern_id, version in versions.items()
        if version is not None
    ]
    return (*work.patterns, *more)


def uses(patterns: Sequence[Json]) -> tuple[PatternUse, ...]:
    """The patterns of a turn as they are counted."""
    return tuple(
        PatternUse(each["id"], each["version"], "loaded" if each.get("how") == "loaded" else "matched")
        for each in patterns
        if each.get("version")
    )


def has_succeeded(ending: Ending) -> bool | None:
    """True of an answer; None where somebody stopped it, or where it failed for what has nothing to do with it."""
    if ending.status == "completed":
        return True
    return None if ending.status == "cancelled" or ending.reason in NOT_THEIRS else False
