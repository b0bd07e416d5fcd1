"""Waits until something on a shelf changes."""

from collections.abc import Callable
from dataclasses import dataclass

from loom_worker.store.shared import Changes, SharedMemory, Shelf

POLL_S = 0.2
MOST_CHANGES = 50
"""In one answer; the next call gives more."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """How time passes."""

    pause: Callable[[float], bool]
    """Waits so many seconds, as ``Event.wait``: less if told to stop, and then it says True."""
    clock_s: Callable[[], float]
    """Never goes back."""


def watch(
    memory: SharedMemory, waiting: Waiting, shelf: Shelf, prefix: str, *, since: int, wait_s: float
) -> tuple[Changes, bool]:
    """Return the changes after a revision, as soon as there are some; none when time is up or the process stops.

    Args:
        since: 0: what is there now, at once. So, too, one that the shelf has not reached: it is another shelf's.

    Returns:
        The changes, and whether they begin anew though the caller has seen some.
    """
    until_s = waiting.clock_s() + wait_s
    while True:
        found = memory.changes(shelf, prefix, since=since, limit=MOST_CHANGES)
        if since > found.revision:
            return memory.changes(shelf, prefix, since=0, limit=MOST_CHANGES), True
        left_s = until_s - waiting.clock_s()
        if found.entries or since == 0 or left_s <= 0 or waiting.pause(min(POLL_S, left_s)):
            return found, False
