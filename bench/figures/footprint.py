"""What Loom takes when it does nothing, and what a turn leaves on the disk."""

import time
from pathlib import Path

from bench.load import burst, warm_up
from bench.processes import cpu_ms_by_kind
from bench.report import Report
from bench.scale import Scale
from bench.system import SCRIPTED, System

SETTLE_S = 3.0
"""After the last turn, before Loom counts as idle."""


def idle(report: Report, scale: Scale) -> None:
    """Processor time without any turn."""
    with System(**SCRIPTED) as loom:
        warm_up(loom)
        time.sleep(SETTLE_S)
        before, began_s = cpu_ms_by_kind(loom.home), time.monotonic()
        time.sleep(scale.idle_s)
        after, passed_s = cpu_ms_by_kind(loom.home), time.monotonic() - began_s
    shares = {kind: (after[kind] - before.get(kind, 0.0)) / passed_s / 10 for kind in after}
    by_kind = {kind: round(share, 2) for kind, share in shares.items()}
    report.add("CPU when idle, all processes", sum(shares.values()), "% of a core", by_kind=by_kind)


def disk(report: Report, scale: Scale) -> None:
    """Bytes of plain turns, each in a session of its own."""
    with System(**SCRIPTED) as loom:
        warm_up(loom)
        before = sizes(loom.home)
        burst(loom, scale.disk_turns, sessions=scale.disk_turns)
        after = sizes(loom.home)
    grown = {part: (after[part] - before[part]) / scale.disk_turns for part in after}
    report.add("disk of a turn", sum(grown.values()) / 1024, "KiB", model="scripted", turns=scale.disk_turns)
    for part, size in grown.items():
        report.add(f"disk of a turn, {part}", size / 1024, "KiB", model="scripted")


def sizes(home: Path) -> dict[str, int]:
    """Bytes of what grows with turns."""
    return {
        "database": _size(home / "loom.db"),
        "write-ahead log (some MiB at most)": _size(home / "loom.db-wal"),
        "valkey": sum(_size(file) for file in (home / "valkey").rglob("*") if file.is_file()),
    }


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0
