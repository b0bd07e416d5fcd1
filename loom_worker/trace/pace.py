"""How fast to export: as fast as it goes while half of the machine is idle, else with a part of what is.

A lower priority would not do: a thread that is kept from running holds the interpreter's lock, and may hold the
database's, and whoever waits for these waits with it.
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path

AMPLE = 0.5
"""Share of all processors (0-1) that must be idle, or ours, to go on without a pause."""
PART_OF_SPARE = 0.1
"""Of what is idle where less is: more would be felt, for turns also wait for the disk and for each other."""
LEAST = 0.03
"""Of one processor, which export gets however busy all of them are."""
MOST_PAUSE_S = 2.0
STAT = Path("/proc/stat")
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Moment:
    """What was used up to a moment, in seconds."""

    at_s: float
    idle_s: float
    """Of all processors together, waiting for disks included."""
    own_s: float
    """By this thread."""


def now() -> Moment | None:
    """Read the clocks; None where the system does not tell, as nowhere but on Linux."""
    try:
        fields = STAT.read_text(encoding="ascii").partition("\n")[0].split()
        return Moment(time.monotonic(), (int(fields[4]) + int(fields[5])) / TICKS, time.thread_time())
    except (OSError, ValueError, IndexError):
        return None


def pause_s(before: Moment | None, after: Moment | None, *, processors: int) -> float:
    """How long to pause after the work between two moments.

    Args:
        processors: of this machine.
    """
    if before is None or after is None or after.at_s <= before.at_s:
        return 0.0
    own_s = after.own_s - before.own_s
    spare = (after.idle_s - before.idle_s + own_s) / ((after.at_s - before.at_s) * processors)
    if spare >= AMPLE:
        return 0.0
    share = max(LEAST, spare * processors * PART_OF_SPARE)
    return min(own_s * (1 / share - 1), MOST_PAUSE_S)
