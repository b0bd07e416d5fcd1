"""The most that a plain turn may cost, in counts; `python -m bench --only budget --check` fails above them.

Whoever makes a turn cheaper lowers them to the new counts and a small margin. Counts vary from run to run by two or
three percent: some things happen once a second (metrics, sweeps), and how many turns share them depends on the machine.
Those of Redis vary by a tenth: on a busy machine fewer events are written together.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Ceiling:
    """None if there is none."""

    alone: float | None = None
    """For one turn after the other: submitted, then waited for."""
    burst: float | None = None
    """For turns of all sessions at once, which nobody waits for."""


CEILINGS: Mapping[str, Ceiling] = {
    "Redis commands, those of scripts included": Ceiling(alone=58, burst=65),
    "Redis round trips": Ceiling(alone=4.5, burst=5.2),
    "SQL statements, web": Ceiling(alone=11.5, burst=6),
    "SQL statements, workers": Ceiling(alone=22, burst=22),
    "PRAGMA statements": Ceiling(alone=2.6, burst=1.6),
    "read transactions, web": Ceiling(alone=3.2, burst=1.1),
    "read transactions, workers": Ceiling(alone=1.5, burst=1.5),
    "write transactions, web": Ceiling(alone=1.1, burst=1.1),
    "write transactions, workers": Ceiling(alone=2.2, burst=2.2),
    "write transactions without a change": Ceiling(alone=0.05, burst=0.05),
    "durable commits, web": Ceiling(alone=1.02, burst=1.02),
    "durable commits, workers": Ceiling(alone=1.02, burst=1.02),
    "pages written to the write-ahead log": Ceiling(alone=52, burst=53),
    "KiB written to the write-ahead log": Ceiling(alone=208, burst=212),
    "KiB that the database grew": Ceiling(alone=6, burst=6),
    "KiB that the files of Valkey grew": Ceiling(alone=5, burst=5),
}
