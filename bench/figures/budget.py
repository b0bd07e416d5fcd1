"""What a plain turn costs in counts, which are the same at any hour and on any machine; each has a ceiling.

Sessions are steady, the processes count for themselves (bench/counting.py), and what Loom does in the same time without
turns is taken off. Processor time stands beside, with that of the counting, 0.1 to 0.2 ms.
"""

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from bench import counting, counts, wal
from bench.ceilings import CEILINGS, Ceiling
from bench.crew import Crew
from bench.figures.footprint import SETTLE_S, sizes
from bench.load import burst, latencies, make_steady
from bench.processes import cpu_ms_by_kind
from bench.report import Report
from bench.scale import Scale
from bench.stats import short
from bench.system import SCRIPTED
from loom_worker.core.settings import embedded_url

COUNTED = ("web", "worker-", "beat")
PREFIX = "steady"
ALONE, BURST = "one turn after the other", "burst"
COMMANDS, ROUND_TRIPS = "Redis commands, those of scripts included", "Redis round trips"
WAL_PAGES, WAL_KIB = "pages written to the write-ahead log", "KiB written to the write-ahead log"
DATABASE_KIB, VALKEY_KIB = "KiB that the database grew", "KiB that the files of Valkey grew"
CPU = "processor ms"
BY_KIND = (counts.STATEMENTS, counts.READS, counts.WRITES, counts.DURABLE)
HEAD = "| a turn's budget | one turn after the other | ceiling | burst | ceiling |\n| --- | --- | --- | --- | --- |"

Amounts = Counter[str]


@dataclass(frozen=True)
class Look:
    """All counts since the start, at one moment."""

    at_s: float
    amounts: Amounts
    log: wal.Log


def measure(report: Report, scale: Scale) -> None:
    """One turn after the other, then a burst; neither needs the other's processes to be new."""
    with (
        tempfile.TemporaryDirectory(prefix="loom-bench-counts-") as folder,
        Crew(entry=counting.entry(Path(folder)), entering=COUNTED, LOOM_SQLITE_SYNC="full", **SCRIPTED) as loom,
        redis.Redis.from_url(embedded_url(loom.home), decode_responses=True) as client,
    ):

        def during(do: Callable[[], object]) -> tuple[Amounts, float]:
            before = _look(loom.home, Path(folder), client)
            do()
            return difference(before, _look(loom.home, Path(folder), client))

        sessions, alone, many = scale.budget_sessions, scale.budget_turns, scale.burst_turns
        make_steady(loom, sessions=sessions, prefix=PREFIX, turns=scale.steady_turns)
        time.sleep(SETTLE_S)
        idle, passed_s = during(lambda: time.sleep(scale.idle_s))
        per_s = {name: amount / passed_s for name, amount in idle.items()}
        measured = {
            ALONE: (*during(lambda: latencies(loom, alone, sessions=sessions, prefix=PREFIX)), alone),
            BURST: (*during(lambda: burst(loom, many, sessions=sessions, prefix=PREFIX)), many),
        }
    _tell(report, {how: per_turn(*took, idle_per_s=per_s) for how, took in measured.items()}, sessions)


def difference(before: Look, after: Look) -> tuple[Amounts, float]:
    """What was counted from one look to the other, and the seconds between them."""
    amounts = Counter(after.amounts)
    amounts.subtract(before.amounts)
    log = after.log.since(before.log)
    amounts[WAL_PAGES], amounts[WAL_KIB] = log.frames, log.written_bytes / 1024
    amounts[DATABASE_KIB] = log.database_pages * log.page_bytes / 1024
    return amounts, after.at_s - before.at_s


def per_turn(
    amounts: Mapping[str, float], took_s: float, turns: int, *, idle_per_s: Mapping[str, float]
) -> dict[str, float]:
    """The counts of one turn, without what would have been counted in that time anyhow."""
    return {
        name: max(0.0, amount - (0.0 if name.startswith(CPU) else idle_per_s.get(name, 0.0) * took_s)) / turns
        for name, amount in amounts.items()
    }


def by_name(found: Mapping[str, Mapping[str, int]]) -> Amounts:
    """What processes counted, under the names of the budget: those of the web, and those of all others together."""
    amounts: Amounts = Counter()
    for kind, values in found.items():
        where = "web" if kind == "web" else "workers"
        for name, value in values.items():
            amounts[f"{name}, {where}" if name in BY_KIND else name] += value
    return amounts


def _look(home: Path, folder: Path, client: "redis.Redis") -> Look:
    stats: Any = client.info("stats")
    amounts = by_name(counts.read(folder))
    amounts[COMMANDS], amounts[ROUND_TRIPS] = stats["total_commands_processed"], stats["total_reads_processed"]
    amounts[VALKEY_KIB] = sizes(home)["valkey"] / 1024
    used_ms = cpu_ms_by_kind(home)
    amounts.update({f"{CPU}, {kind}": value for kind, value in used_ms.items()})
    amounts[f"{CPU}, all processes"] = sum(used_ms.values())
    return Look(time.monotonic(), amounts, wal.read(home / "loom.db-wal"))


def _tell(report: Report, found: Mapping[str, Mapping[str, float]], sessions: int) -> None:
    if unknown := CEILINGS.keys() - found[ALONE].keys():
        raise SystemExit(f"ceilings for what nobody counts: {', '.join(sorted(unknown))}")
    rows = [HEAD]
    for name in sorted(found[ALONE], key=_place):
        ceiling = CEILINGS.get(name, Ceiling())
        cells = []
        for how, most in ((ALONE, ceiling.alone), (BURST, ceiling.burst)):
            report.count(f"{name}, {how}", found[how][name], ceiling=most, sessions=sessions)
            cells += [short(found[how][name]), "" if most is None else short(most)]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    report.append_table("\n".join(rows))


def _place(name: str) -> tuple[int, str]:
    """In the order of the ceilings; what has none comes last."""
    names = list(CEILINGS)
    return (names.index(name) if name in names else len(names), name)
