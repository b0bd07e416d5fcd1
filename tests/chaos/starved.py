"""Workers that lost a lease though nobody touched them: on a machine that stands still they are late with everything.

They say so themselves, in their logs. What such a worker had under way may be done again by another, as after a death.
"""

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from tests.chaos.records import Injection

TOLD = ('"lease lost"', '"tool calls sent again"', '"judges asked again"')
"""A worker lost a turn, or a turn gave a worker up whose heartbeat was not heard."""


def read(logs: Path, *, lease_s: float) -> tuple[Injection, ...]:
    """Each such moment, from a lease's time before it on."""
    return tuple(injection for file in sorted(logs.glob("*.log")) for injection in _of(file, lease_s))


def _of(file: Path, lease_s: float) -> Iterator[Injection]:
    for line in file.read_text(errors="replace").splitlines():
        if any(told in line for told in TOLD):
            at_s = datetime.fromisoformat(json.loads(line)["time"]).timestamp()
            yield Injection("starved", file.stem, at_s - lease_s, at_s)
